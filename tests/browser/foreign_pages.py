"""Pages of other sites that try to read runs, to change something, or to start work on a server of this machine.

Each is a piece of HTML or script. `SERVER` is the address of the server that is attacked; what a page could read of it is
put into `window.stolen`.
"""

from __future__ import annotations

_API = "SERVER/api/v1"
_EXPORT = f"{_API}/runs/healthy/timeline/export?detail=full"
_STEAL = "then((text) => text && stolen.push(String(text).slice(0, 200)), () => {})"


def _submit(action: str, kind: str, field: str = '<input name="files" value="healthy">') -> str:
    form = f'<form id="f" method="post" action="{action}" enctype="{kind}" target="t">{field}</form>'
    return f'<iframe name="t"></iframe>{form}<script>document.getElementById("f").submit()</script>'


def _script(code: str) -> str:
    return f'<script type="module">{code}</script>'


_CHANGES = {
    "form to imports": _submit(f"{_API}/imports", "multipart/form-data"),
    "form of JSON to a window": _submit(f"{_API}/runs/healthy/window", "text/plain", """<input name='{"first":0,"x":"' value='"}'>"""),
    "form to a window": _submit(f"{_API}/runs/healthy/window", "application/x-www-form-urlencoded"),
    "fetch without CORS": _script(
        f'fetch("{_API}/imports", {{method: "POST", mode: "no-cors", body: "{{}}"}}).then((a) => a.text()).{_STEAL}'
    ),
    "fetch with a preflight": _script(
        f'fetch("{_API}/runs/healthy/window", {{method: "POST", headers: {{"Content-Type": "application/json"}}, body: "{{}}"}})'
        f".then((a) => a.text()).{_STEAL}"
    ),
    "fetch that deletes": _script(f'fetch("{_API}/imports/x", {{method: "DELETE"}}).then((a) => a.text()).{_STEAL}'),
    "beacon": _script(f'navigator.sendBeacon("{_API}/imports", "{{}}")'),
    "beacon with a form": _script(
        f'const d = new FormData(); d.append("f", new Blob(["{{}}"]), "t.json"); navigator.sendBeacon("{_API}/imports", d)'
    ),
    "request with cookies": _script(
        f'const x = new XMLHttpRequest(); x.open("POST", "{_API}/runs/healthy/window"); x.withCredentials = true; '
        'x.onload = () => stolen.push(x.responseText); x.send("{}")'
    ),
}  # fmt: skip
_READS = {
    "fetch": _script(f'fetch("{_API}/runs").then((a) => a.text()).{_STEAL}'),
    "fetch without CORS that reads": _script(
        f'fetch("{_API}/runs", {{mode: "no-cors"}}).then((a) => a.text()).{_STEAL}'
    ),
    "fetch of a page": _script(f'fetch("SERVER/", {{credentials: "include"}}).then((a) => a.text()).{_STEAL}'),
    "XMLHttpRequest": _script(
        f'const x = new XMLHttpRequest(); x.open("GET", "{_API}/runs"); x.onload = () => stolen.push(x.responseText); x.send()'
    ),
    "script": f'<script>onerror = () => true</script><script src="{_API}/runs"></script>',
    "module": _script('import("SERVER/static/x/js/shell.js").then((m) => stolen.push(Object.keys(m)), () => {})'),
    "worker": _script(
        f'new Worker(URL.createObjectURL(new Blob([`importScripts("{_API}/runs")`]))).onmessage = (e) => stolen.push(e.data)'
    ),
    "event source": _script(f'new EventSource("{_API}/runs").onmessage = (e) => stolen.push(e.data)'),
    "web socket": _script('new WebSocket("SERVER/".replace("http", "ws")).onmessage = (e) => stolen.push(e.data)'),
    "frame": '<iframe src="SERVER/runs/healthy/" onload="try { stolen.push(this.contentDocument.body.innerHTML) } catch {}"></iframe>',
    "frame without an origin": '<iframe sandbox="allow-scripts" src="SERVER/"></iframe>',
    "object": '<object data="SERVER/runs/healthy/"></object>',
    "embed": '<embed src="SERVER/runs/healthy/">',
    "style sheet": '<link rel="stylesheet" href="SERVER/runs/healthy/">',
    "window": _script(
        'const w = open("SERVER/"); setTimeout(() => { try { stolen.push(w.document.body.innerHTML) } catch {} }, 300)'
    ),
}
_WORK = {
    "picture": f'<img src="{_EXPORT}">',
    "pictures": "".join(f'<img src="{_EXPORT}&n={number}">' for number in range(20)),
    "film": f'<video src="{_EXPORT}" autoplay></video>',
    "font": f'<style>@font-face {{ font-family: a; src: url("{_EXPORT}") }} p {{ font-family: a }}</style><p>text',
    "frame of a download": f'<iframe src="{_EXPORT}"></iframe>',
}
PAGES: dict[str, str] = {**_CHANGES, **_READS, **_WORK}


def write_page(name: str, server: str) -> str:
    """Return the HTML of a page."""
    return (
        f"<!doctype html><meta charset=utf-8><script>window.stolen = []</script>{PAGES[name].replace('SERVER', server)}"
    )
