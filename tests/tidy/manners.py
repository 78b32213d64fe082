"""What code and tests may do."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tidy.rooms import imports
from tidy.shape import FUNCTIONS, is_protocol, name_of
from tidy.tree import Source

OUTERMOST_LOOP = "host/tidemill_host/turn.py"
"""The one place that may catch everything, once: it reports, and the process ends."""

NAME_WORDS_MIN = 3
ADDRESS = re.compile(r"^(?:\w+://)?(?:localhost|127\.0\.0\.1|0\.0\.0\.0|\[::1?\]):[1-9]\d*\b")
LISTENERS = {
    *("create_server", "create_connection", "start_server", "open_connection"),
    *("bind", "connect", "TCPSite", "SockSite"),
}
PORT_MIN = 1024
REAL_WORLD = ("tests/browser/", "tests/e2e/", "tests/cluster/", "tests/spark/")
"""Where tests have real processes, and may wait for them by the real clock."""
REAL_CLOCK = {"time.time", "time.time_ns", "time.monotonic", "time.monotonic_ns"}
UNSAFE = re.compile(r"PYTHONOPTIMIZE|\bpython[\w.]*(?:\)|\})?(?:\s+-\w+)*\s+-\w*O")
RUNS_PYTHON = (
    "Makefile",
    ".ci/",
    "images/",
    "charts/",
    "skaffold.yaml",
    ".pre-commit-config.yaml",
    "pyproject.toml",
)


def is_test(source: Source) -> bool:
    return source.folder == "tests"


def nothing_swallows_everything(source: Source) -> Iterator[str]:
    """``except Exception`` is for the outermost loop. One that ends in ``raise`` swallows nothing: anywhere."""
    if is_test(source):
        return
    broad = [
        node
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ExceptHandler) and catches_everything(node) and not raises_again(node)
    ]
    for node in broad[1 if source.path == OUTERMOST_LOOP else 0 :]:
        yield (
            f"{source.at(node)}: catches every exception: name the ones you expect, or end the block with a bare "
            f"`raise` (only {OUTERMOST_LOOP} may catch all, once)"
        )


def catches_everything(node: ast.ExceptHandler) -> bool:
    caught = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
    return any(kind is None or name_of(kind) in {"Exception", "BaseException"} for kind in caught)


def raises_again(node: ast.ExceptHandler) -> bool:
    return isinstance(node.body[-1], ast.Raise) and node.body[-1].exc is None


def nothing_is_left_out(source: Source) -> Iterator[str]:
    """``NotImplementedError`` stands only where a subclass must fill in. A fake may refuse what no test needs."""
    if is_test(source):
        return
    for function, owner in functions(source.tree):
        abstract = any(name_of(decorator) == "abstractmethod" for decorator in function.decorator_list)
        if abstract or (owner is not None and is_protocol(owner)):
            continue
        for node in ast.walk(function):
            if (
                isinstance(node, ast.Raise)
                and node.exc is not None
                and name_of(node.exc) == "NotImplementedError"
            ):
                yield f"{source.at(node)}: {function.name} is not finished: write it, or take it out with its callers"


def functions(
    tree: ast.AST, owner: ast.ClassDef | None = None
) -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef, ast.ClassDef | None]]:
    """Every function that is not inside another one, with its class."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, FUNCTIONS):
            yield node, owner
        else:
            yield from functions(node, node if isinstance(node, ast.ClassDef) else owner)


def tests_do_not_sleep(source: Source) -> Iterator[str]:
    """The simulator's ``asyncio.sleep`` is virtual; a test with real processes may poll in a function ``wait...``."""
    if not is_test(source):
        return
    polls = waiting_lines(source) if source.path.startswith(REAL_WORLD) else set[int]()
    virtual = source.path.startswith(("tests/sim/", "tests/unit/sim/"))
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Call) or node.lineno in polls:
            continue
        called = ast.unparse(node.func)
        naps = called == "time.sleep" or (called == "asyncio.sleep" and not virtual and not is_zero(node))
        if naps:
            yield f"{source.at(node)}: a test sleeps: wait for the event, or poll in a wait_... of e2e or cluster"
        elif called in REAL_CLOCK and not source.path.startswith(REAL_WORLD):
            yield f"{source.at(node)}: a test reads the real clock: pass now_ms, or move the test to tests/e2e"
    for node, module in imports(source.tree):
        if module in {"time.sleep", *REAL_CLOCK} or (module == "asyncio.sleep" and not virtual):
            yield f"{source.at(node)}: import the module and not {module}, so that readers see whose clock it is"


def waiting_lines(source: Source) -> set[int]:
    waits = (
        node for node in ast.walk(source.tree) if isinstance(node, FUNCTIONS) and node.name.startswith("wait")
    )
    return {line for node in waits for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}


def is_zero(call: ast.Call) -> bool:
    return len(call.args) == 1 and isinstance(call.args[0], ast.Constant) and call.args[0].value == 0


def tests_take_free_ports(source: Source) -> Iterator[str]:
    """A guess, not a proof: numbers given to what listens or dials, and addresses written out in e2e."""
    if not is_test(source) or source.path.startswith(("tests/sim/", "tests/unit/sim/")):
        return
    advice = "ask for port 0 and read which one it became"
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and name_of(node.func) in LISTENERS:
            values = (leaf.value for part in [*node.args, *node.keywords] for leaf in constants(part))
            if any(isinstance(value, int) and value >= PORT_MIN for value in values):
                yield f"{source.at(node)}: a fixed port, taken on the next machine: {advice}"
        elif source.path.startswith(REAL_WORLD) and is_address(node):
            yield f"{source.at(node)}: an address with a fixed port, taken on the next machine: {advice}"


def is_address(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and ADDRESS.match(node.value) is not None
    )


def constants(node: ast.AST) -> Iterator[ast.Constant]:
    return (leaf for leaf in ast.walk(node) if isinstance(leaf, ast.Constant))


def tests_are_sentences(source: Source) -> Iterator[str]:
    if not is_test(source) or not source.name.startswith("test_"):
        return
    for function, _ in functions(source.tree):
        words = [word for word in function.name.removeprefix("test_").split("_") if word]
        short = function.name.startswith("test_") and len(words) < NAME_WORDS_MIN
        if short and ast.get_docstring(function) is None:
            yield (
                f"{source.at(function)}: {function.name} does not say what is proved: name it with at least "
                f"{NAME_WORDS_MIN} words after test_, or give it a docstring"
            )


def asserts_stay_on(path: str, text: str) -> Iterator[str]:
    if not path.startswith(RUNS_PYTHON):
        return
    for number, line in enumerate(text.splitlines(), 1):
        if UNSAFE.search(line):
            yield f"{path}:{number}: runs Python without its asserts: they guard the data, take -O out"
