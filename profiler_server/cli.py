"""The command `stepscope`, but for `stepscope run`.

Exit codes: 0 good, 1 a gate failed, 2 bad input, with one line on stderr.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from collector.ending import unwind_at_signals
from collector.format.schema.errors import StepscopeError, UsageError
from collector.plugins import search_room
from collector.version import __version__, find_documents
from profiler_server import commands
from profiler_server.settings import Settings

BAD_INPUT = 2
SHORT = {
    "run": "Record a training script: `stepscope run train.py`.",
    "serve": "Show the runs below a folder: `stepscope serve runs`.",
}
"""Verbs of `stepscope` that `entry.py` takes away before this command line is read: listed for help and completion."""


class _BareFlags:
    """A mix-in for commands whose help shows no type behind a flag, because a flag takes no value."""

    def get_params(self, ctx: Any) -> list[Any]:
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if getattr(param, "is_flag", False):
                param.metavar = ""
        return params


class _Command(_BareFlags, TyperCommand):
    """A sub-command. An option whose metavar ends with … takes all following words up to the next option.

    So the shell can put all files that match a pattern behind such an option.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        greedy = {
            name
            for param in self.params
            if str(getattr(param, "metavar", None) or "").endswith("…") and param.param_type_name == "option"
            for name in param.opts
        }
        return super().parse_args(ctx, _repeat_options(args, greedy))


class _Group(_BareFlags, TyperGroup):
    pass


def _repeat_options(words: list[str], greedy: set[str]) -> list[str]:
    """Repeat a greedy option before each word behind it: `--against x y` becomes `--against x --against y`."""
    found: list[str] = []
    option = ""
    for word in words:
        if word.startswith("-"):
            option = word if word in greedy else ""
            found += [] if option else [word]
        else:
            found += [option, word] if option else [word]
    return found


app = typer.Typer(
    cls=_Group,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Say what a PyTorch training run is bound by. Without a command: show the runs below a folder in a browser.",
)


@app.callback(invoke_without_command=True)
def serve_runs(
    context: typer.Context,
    base_dir: commands.BaseDir = None,
    host: Annotated[str, typer.Option(metavar="HOST", help="Address to listen on.")] = Settings.host,
    port: Annotated[
        int, typer.Option(metavar="PORT", min=0, max=65535, help="Port; 0 takes any that is free.")
    ] = Settings.port,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST", help="A further name under which browsers may ask, such as that of a proxy."),
    ] = None,
    token: Annotated[
        str,
        typer.Option(
            metavar="TOKEN",
            envvar="STEPSCOPE_TOKEN",
            show_envvar=False,
            help="Secret that every request must carry. By default one is made if other machines can reach the port.",
        ),
    ] = "",
    upload_limit: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="MIB",
            help="Most that a browser may send to be imported; 0, the default where other machines reach the port, takes nothing.",
        ),
    ] = None,
    import_memory: Annotated[
        int, typer.Option(min=100, metavar="MIB", help="Most memory that an import from a browser may take.")
    ] = Settings.import_memory_bytes >> 20,
    otlp_endpoint: Annotated[
        str,
        typer.Option(
            metavar="URL", help="Send metrics of the runs that record to this OpenTelemetry receiver, by HTTP."
        ),
    ] = Settings.otlp_endpoint,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    context.obj = base_dir
    if context.invoked_subcommand is not None:
        context.with_resource(unwind_at_signals())
        return
    if version:
        say(f"stepscope {__version__}")
        return
    if base_dir is None:
        raise UsageError("give --summary-base-dir DIR, the folder that holds your runs, or a command (see --help)")
    from profiler_server.web.serving import serve

    settings = Settings(
        base_dir,
        host,
        port,
        tuple(allowed_host or ()),
        token=token,
        import_memory_bytes=import_memory << 20,
        otlp_endpoint=otlp_endpoint,
    )
    serve(replace(settings, upload_limit_bytes=choose_upload_limit(settings, upload_limit)), say)


def choose_upload_limit(settings: Settings, limit_mib: int | None) -> int:
    """Return the upload limit in bytes. If `limit_mib` is None, return the limit of the settings, or 0 (no uploads) for
    a server that other machines reach, or whose runs lie behind a URL.
    """
    if limit_mib is not None:
        return limit_mib << 20
    from profiler_server.store.mirror import find_mirror

    takes_uploads = settings.is_loopback and find_mirror(settings.base_dir) is None
    return settings.upload_limit_bytes if takes_uploads else 0


def say(text: str) -> None:
    typer.echo(text)
    sys.stdout.flush()


def register_commands() -> None:
    """Register each module in `profiler_server/commands` as a sub-command, with its example below its help."""
    app.info.epilog = f"Example: stepscope serve runs. Documents: {find_documents()}"
    for verb, text in SHORT.items():
        app.command(verb, help=text)(lambda: None)
    for module in search_room(commands, "command").modules:
        app.command(module.NAME, cls=_Command, epilog=f"Example: {module.EXAMPLE}")(module.command)


def main(is_serve: bool = False) -> None:
    """Run the command line. A StepscopeError or an OSError becomes one line on stderr, and exit code 2. `is_serve`: the
    user typed `stepscope serve`, whose help shows no other commands."""
    if is_serve and {"-h", "--help"} & {*sys.argv}:
        one = typer.Typer(context_settings={"help_option_names": ["-h", "--help"]})
        one.command(cls=_Command, help=SHORT["serve"], epilog="Example: stepscope serve runs")(serve_runs)
        one(prog_name="stepscope serve [DIR]")
    register_commands()
    try:
        app()
    except StepscopeError as error:
        sys.exit(fail(str(error)))
    except OSError as error:
        sys.exit(fail(f"{error.filename or 'a file'}: {error.strerror or error}"))


def fail(message: str) -> int:
    print(f"stepscope: {' '.join(message.split())}", file=sys.stderr)
    return BAD_INPUT


if __name__ == "__main__":
    main()
