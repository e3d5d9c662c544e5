/**
 * Load a trace into Perfetto's own trace processor and print what queries answer, as JSON.
 *
 *     node query.mjs ENGINE_FOLDER TRACE "select …" …
 *
 * ENGINE_FOLDER holds engine.mjs, engine_bundle.node.js and trace_processor.wasm; `python tests/perfetto/fetch.py` puts
 * them into tests/perfetto/node_modules/perfetto-engine. The bundle is made for a browser's worker, so the little of one that it asks for
 * stands here.
 */
import { createReadStream, readFileSync } from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { runInThisContext } from 'node:vm';

const CHUNK_BYTES = 32 << 20;

/**
 * Start the WebAssembly build; what it answers goes to `onReply`.
 * @param {string} folder
 * @param {(bytes: Uint8Array) => void} onReply
 * @returns {(bytes: Uint8Array) => void} sends a request
 */
function startWorker(folder, onReply) {
  class FileRequest {
    response = readFileSync(path.join(folder, 'trace_processor.wasm'));
    open() {}
    send() {}
  }
  const scope = { self: globalThis, location: { href: 'file:///' }, WorkerGlobalScope: class {} };
  Object.assign(globalThis, scope, { XMLHttpRequest: FileRequest });
  runInThisContext(readFileSync(path.join(folder, 'engine_bundle.node.js'), 'utf8'));
  /** @type {any} */
  const port = { postMessage: onReply };
  globalThis.onmessage({ data: port });
  return (bytes) => port.onmessage({ data: bytes });
}

/**
 * @param {string} folder
 * @returns {Promise<any>} an engine that speaks to the WebAssembly build
 */
async function openEngine(folder) {
  const { EngineBase } = await import(pathToFileURL(path.join(folder, 'engine.mjs')).href);
  class NodeEngine extends EngineBase {
    id = 'node';
    mode = 'WASM';
    send = startWorker(folder, (bytes) => this.onRpcResponseBytes(bytes));
    rpcSendRequestBytes(bytes) {
      this.send(bytes);
    }
  }
  const engine = new NodeEngine();
  // What waits for the module to be initialized is still in the queue.
  await new Promise((done) => setTimeout(done, 0));
  return engine;
}

const [folder, trace, ...queries] = process.argv.slice(2);
const engine = await openEngine(path.resolve(folder));
for await (const chunk of createReadStream(trace, { highWaterMark: CHUNK_BYTES })) await engine.parse(new Uint8Array(chunk));
await engine.notifyEof();
const answers = [];
for (const sql of queries) {
  const found = await engine.query(sql);
  const rows = [];
  const columns = found.columns();
  for (const row = found.iter({}); row.valid(); row.next()) rows.push(columns.map((name) => row.get(name)));
  answers.push(rows);
}
console.log(JSON.stringify(answers, (_, value) => (typeof value === 'bigint' ? Number(value) : value)));
process.exit(0);
