"""Marks in traced programs: where data are clipped, released or declared, for `core.flow` to find.

While a program is traced to be checked, what a mechanism or a clip does becomes one equation of the primitive made
here, which holds the computation and its owner. Everywhere else a marked function is just called.
"""

import copy
import dataclasses
import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from types import FrameType, FunctionType, MappingProxyType
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, JaxprEqn, Primitive, jaxpr_as_fun, jaxprs_in_params
from jax.extend.core import Literal as Constant
from jax.interpreters import ad, batching, mlir

from gossamer.errors import PrivacyError

Kind = Literal["init", "release", "public", "clipped", "declared", "lost"]

_HIDDEN = frozenset(
    {"pure_callback", "io_callback", "debug_callback", "debug_print", "buffer_callback", "infeed", "outfeed"}
    | {"custom_partitioning", "custom_partitioning_call", "ffi_call", "pallas_call", "tpu_custom_call", "custom_call"}
    | {"custom_vmap_call", "call_exported", "rng_bit_generator", "rng_uniform"}
)
"""Operations that tell somebody else, that a program does not show, or that give all rows the bits of the first."""
_ARRAYS = (jax.core.Tracer, jax.Array, np.ndarray, np.generic, bool, int, float)
_HOME = __file__.rpartition("privacy")[0]  # the folder of the package, with its separator
_REPLACE = (dataclasses.replace, getattr(dataclasses, "_replace", None), getattr(copy, "replace", None))
_tracing = jax.make_user_context(default_value=None)  # part of the key of every cache that JAX keeps of a trace


class Mark(NamedTuple):
    """What a marked equation stands for.

    Attributes:
        kind: "init", "release" and "public" are a mechanism's; "clipped" bounds values; "declared" says why a value
            moves no farther than the noise is scaled for; "lost" is what a `vmap` makes of any of them.
        owner: the mechanism; the clip and whether it clips rows or one vector; the declaration.
        sizes: how many of the equation's operands belong to each argument.
        names: of the draws, where the third argument holds them.
        grids: of the lattices, where the fourth argument holds them.
        results: how many results come before the mechanism's state.
        method: of the mechanism that releases.
    """

    kind: Kind
    owner: Any
    sizes: tuple[int, ...]
    names: tuple[str, ...] = ()
    grids: tuple[str, ...] = ()
    results: int = 0
    method: str = ""


class Declaration(NamedTuple):
    """Why a value moves no farther than the noise is scaled for: mathematics that no program sees.

    Attributes:
        claim: in words.
        place: the function that says it.
        ours: whether that function is Gossamer's own.
    """

    claim: str
    place: str
    ours: bool


class Clipped(NamedTuple):
    """What was clipped: the clip, and whether to each row of a block or to one vector as a whole."""

    clip: Any
    rows: int | None


marked_p = Primitive("gossamer_mark")
marked_p.multiple_results = True
marked_p.def_abstract_eval(lambda *_, program, mark: program.out_avals)


def _batched(args: Any, dims: Any, *, program: ClosedJaxpr, mark: Mark) -> tuple[Any, Any]:
    """Inside a `vmap` of the user's a mark is lost, and its computation is not."""
    inside = jax.make_jaxpr(jax.vmap(jaxpr_as_fun(program), dims))(*args)
    results = marked_p.bind(*args, program=inside, mark=mark._replace(kind="lost"))
    return results, [0] * len(results)


def _inlined(*args: Any, program: ClosedJaxpr, mark: Mark) -> list[Any]:
    """In a loop that `unmarked` does not look into, a mark is what it holds."""
    return list(jaxpr_as_fun(program)(*args))


def _differentiated(*_: Any, mark: Mark, **__: Any) -> Any:
    """A derivative of a clip or a release is bounded by neither."""
    hint = "take gradients first, and clip and release them: `Problem.clipped_data_gradient_sum` does both"
    raise PrivacyError.of("flow", f"a derivative of {mark.kind} values", "none", hint)


ad.primitive_jvps[marked_p] = _differentiated
batching.primitive_batchers[marked_p] = _batched
mlir.register_lowering(marked_p, mlir.lower_fun(_inlined, multiple_results=True))
marked_p.def_impl(_inlined)


def tracing() -> bool:
    """Whether a program is being traced to be checked."""
    return _tracing.value is not None


def traced(function: Callable[..., Any], *args: Any) -> tuple[ClosedJaxpr, Any]:
    """The program of a function with its marks, and the shapes of its results."""
    with _tracing("checked"):
        program, shapes = jax.make_jaxpr(function, return_shape=True)(*args)
    return program, shapes


def marked(
    kind: Kind, owner: Any, function: Callable[..., Any], *args: Any, state_at: int | None = None, method: str = ""
) -> Any:
    """Call the function; in a program that is traced to be checked, as one equation. Only Gossamer makes marks.

    Args:
        kind: of the mark.
        owner: who makes it.
        function: Gossamer's own, of all the arrays it needs: it closes over none.
        args: trees of arrays, in containers of Python's or of Gossamer's own.
        state_at: which of several results is the state of a mechanism.
        method: of a mechanism, where it releases.
    """
    if not tracing():
        return function(*args)
    if not _is_ours(sys._getframe(1)) or not _is_our_function(function):
        raise PrivacyError.of("flow", f"a mark {kind!r} of other code", "marks of Gossamer's own mechanisms and clips")
    for arg in args:
        _require_plain(kind, arg)
    flat = [jax.tree.flatten(arg) for arg in args]
    leaves = [leaf for each, _ in flat for leaf in each]
    sizes = tuple(len(each) for each, _ in flat)

    def plain(*leaves: Any) -> Any:
        given, rest = [], list(leaves)
        for (_, tree), size in zip(flat, sizes, strict=True):
            given.append(jax.tree.unflatten(tree, rest[:size]))
            rest = rest[size:]
        return function(*given)

    with _tracing(None):
        program, shapes = jax.make_jaxpr(plain, return_shape=True)(*leaves)
    names, grids = (tuple(sorted(args[2])), tuple(sorted(args[3]))) if kind == "release" else ((), ())
    before = 0 if state_at is None else len(jax.tree.leaves(shapes[:state_at]))
    mark = Mark(kind, owner, sizes, names, grids, before, method)
    results = marked_p.bind(*leaves, program=program, mark=mark)
    return jax.tree.unflatten(jax.tree.structure(shapes), results)


def _is_our_function(function: Any) -> bool:
    """Whether a function is code of Gossamer, and not something callable that our code was handed."""
    home = sys.modules.get(getattr(function, "__module__", ""))
    return isinstance(function, FunctionType) and _is_in_the_package(home) and function.__globals__ is vars(home)


def _require_plain(kind: Kind, tree: Any) -> None:
    """Refuse containers of other classes: what they do when they are used, a mark would take for its own."""
    inside: Any = ()
    if type(tree) in (tuple, list) or (isinstance(tree, tuple) and ours(type(tree))):
        inside = tree
    elif type(tree) in (dict, MappingProxyType):
        inside = tree.values()
    elif not (tree is None or isinstance(tree, _ARRAYS)) or _is_strange(type(tree)):
        allowed = "arrays, in tuples, lists, dictionaries or what Gossamer made"
        raise PrivacyError.of("flow", f"a {type(tree).__name__} among {kind} values", allowed)
    for each in inside:
        _require_plain(kind, each)


def _is_strange(kind: type) -> bool:
    """Whether a class of arrays or numbers is neither Python's, nor NumPy's, nor JAX's."""
    return kind.__module__.partition(".")[0] not in ("builtins", "numpy", "jax", "jaxlib")


def ours(kind: type) -> bool:
    """Whether a class is Gossamer's own, and not one that calls itself so.

    >>> class Mine: ...
    >>> ours(Mark), ours(Mine)
    (True, False)
    """
    home = sys.modules.get(kind.__module__)
    found: Any = home
    for name in kind.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is kind and _is_in_the_package(home)


def _is_in_the_package(module: Any) -> bool:
    return str(getattr(module, "__file__", "")).startswith(_HOME)


def _is_ours(frame: FrameType) -> bool:
    """Whether code is that of a module of Gossamer, and not of one that calls itself so."""
    name = frame.f_globals.get("__name__", "")
    home = sys.modules.get(name)
    return _is_in_the_package(home) and vars(home) is frame.f_globals


def called_by_us() -> bool:
    """Whether the function that asks was called by code of Gossamer."""
    return _is_ours(sys._getframe(2))


def put_together_by_us(kind: type) -> bool:
    """Whether the object of this dataclass that is being made is made, or changed, by an algorithm's function.

    Those of `algorithms`, attacks on them, experiments of papers, and what `kind` does to itself: other rooms are
    handed functions of users to call.
    """
    between = {getattr(one, "__code__", None) for one in (vars(kind)["__init__"], *_REPLACE)}
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code in between:
        frame = frame.f_back
    rooms = ("gossamer.algorithms", "gossamer.auditing.attacks", "gossamer.experiments.papers", kind.__module__)
    return frame is not None and _is_ours(frame) and frame.f_globals["__name__"].startswith(rooms)


def mark_methods(cls: type, release: tuple[str, ...]) -> None:
    """Mark the methods of a mechanism's class that make its state and that release."""
    for name in ("init", *release):
        method = vars(cls).get(name)
        if inspect.isfunction(method) and not getattr(method, "__isabstractmethod__", False):
            setattr(cls, name, _marking(method, name))


def _marking(method: Callable[..., Any], name: str) -> Callable[..., Any]:
    if name == "init":

        @functools.wraps(method)
        def init(self: Any, *args: Any, **options: Any) -> Any:
            _require_own(self, name, init)
            return marked("init", self, lambda args, options: method(self, *args, **options), args, options)

        return init

    @functools.wraps(method)
    def release(self: Any, state: Any, value: Any, noise: Any, grid: Any, **public: Any) -> Any:
        if not tracing():
            return method(self, state, value, noise, grid, **public)
        _require_own(self, name, release)
        if not isinstance(noise, Mapping) or not set(self.laws()) <= set(noise) or len(jax.tree.leaves(value)) != 1:
            given = f"a value of {len(jax.tree.leaves(value))} arrays with draws {sorted(noise)}"
            hint = f"declare them for the function that releases, and hand it `now.noise`: {', '.join(self.laws())}"
            raise PrivacyError.of("release", given, "one array, and the mechanism's own draws", hint)
        if jax.numpy.shape(value) != self.shape or jax.numpy.result_type(value) != "float32":
            given = f"{jax.numpy.result_type(value)} of shape {jax.numpy.shape(value)}"
            hint = "other shapes would share noise, or be released more than once"
            raise PrivacyError.of("release", given, f"a float32 array of shape {self.shape}", hint)
        used = {name: noise[name] for name in self.laws()}

        def plain(state: Any, value: Any, noise: Any, grid: Any, public: Any) -> Any:
            return method(self, state, value, noise, grid, **public)

        spacing = {name: grid[name] for name in used if name in grid}
        return marked("release", self, plain, state, value, used, spacing, public, state_at=1, method=name)

    return release


def _require_own(mechanism: Any, name: str, method: Any) -> None:
    """Refuse a method of one class that is called on a mechanism of another."""
    if tracing() and getattr(type(mechanism), name, None) is not method:
        given = f"{method.__qualname__} on {type(mechanism).__name__}"
        raise PrivacyError.of("flow", given, "the mechanism's own method")


def refuse_effects(jaxpr: Any, function: str) -> None:
    """Refuse a program that does more than compute, or whose computation it does not show.

    Operations are JAX's own: what others mean, nobody knows.

    >>> refuse_effects(jax.make_jaxpr(lambda x: x + 1)(1.0).jaxpr, "speak")
    """
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        if name in _HIDDEN or equation.effects or not _is_known(equation.primitive) or _draws_alike(equation):
            what = "it prints, or calls back to Python" if "callback" in name or "debug" in name else f"by {name}"
            raise PrivacyError(f"flow: {function} does more than its program shows ({what}). Remove it.")
        for inner in jaxprs_in_params(equation.params):
            refuse_effects(getattr(inner, "jaxpr", inner), function)


def _draws_alike(equation: JaxprEqn) -> bool:
    """Whether an operation on random keys is one that a `vmap` does not do for every row: only threefry does."""
    kinds = [str(one.aval) for one in (*equation.invars, *equation.outvars)]
    return any("key<" in kind and "key<fry>" not in kind for kind in kinds)


def _is_known(primitive: Primitive) -> bool:
    """Whether an operation is ours or JAX's; modules of JAX that were imported since are looked at again."""
    if primitive not in _known:
        _known.update(_primitives_of_jax())
    return primitive in _known


def _primitives_of_jax() -> set[Primitive]:
    modules = [module for name, module in sys.modules.items() if name.partition(".")[0] == "jax"]
    return {one for module in modules for one in vars(module).values() if isinstance(one, Primitive)}


_known: set[Primitive] = {marked_p}


def declared(value: jax.Array, claim: str) -> jax.Array:
    """The value; says why one unit moves it no farther than the noise of its release is scaled for.

    For what no program can see: how far gossip spreads a value, how a trace fades, how often a choice is shown. The
    claim appears among the assumptions of the guarantee. Said outside of Gossamer, nothing enforces it, and the
    guarantee is heuristic.

    >>> import jax.numpy as jnp
    >>> float(declared(jnp.float32(2.0), "twice the clip, by Lemma 1"))
    2.0
    """
    if not tracing():
        return value
    frame = sys._getframe(1)
    said = Declaration(claim, f"{frame.f_globals['__name__']}.{frame.f_code.co_qualname}", _is_ours(frame))
    result: jax.Array = marked("declared", said, lambda one: (one,), value)[0]
    return result


def unmarked(closed: ClosedJaxpr, *args: Any) -> list[Any]:
    """The program without its marks: what they hold is computed in their place."""
    known: dict[Any, Any] = dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
    known |= dict(zip(closed.jaxpr.invars, args, strict=True))

    def read(variable: Any) -> Any:
        return variable.val if isinstance(variable, Constant) else known[variable]

    for equation in closed.jaxpr.eqns:
        results = _without_marks(equation, [read(variable) for variable in equation.invars])
        known.update(zip(equation.outvars, results, strict=True))
    return [read(variable) for variable in closed.jaxpr.outvars]


def _without_marks(equation: JaxprEqn, values: list[Any]) -> list[Any]:
    params = equation.params
    if equation.primitive is marked_p:
        return unmarked(params["program"], *values)
    if equation.primitive.name in ("scan", "cond", "jit", "pjit") and _has_marks(params):
        if equation.primitive.name in ("jit", "pjit"):
            return unmarked(params["jaxpr"], *values)
        inner = {"jaxpr": _inner(params["jaxpr"])} if "jaxpr" in params else {}
        branches = {"branches": tuple(map(_inner, params["branches"]))} if "branches" in params else {}
        found = equation.primitive.bind(*values, **params | inner | branches)
        return list(found)
    return as_written(equation, values)


def as_written(equation: JaxprEqn, values: list[Any]) -> list[Any]:
    """The results of an equation for these values."""
    bound = equation.primitive.get_bind_params(equation.params)
    functions, options = bound if isinstance(bound, tuple) else ((), bound)  # older releases of JAX: a pair
    found = equation.primitive.bind(*functions, *values, **options)
    return list(found) if equation.primitive.multiple_results else [found]


def _inner(closed: ClosedJaxpr) -> ClosedJaxpr:
    return jax.make_jaxpr(functools.partial(unmarked, closed))(*closed.in_avals)


def _has_marks(params: Mapping[str, Any]) -> bool:
    inner = [getattr(one, "jaxpr", one) for one in jaxprs_in_params(dict(params))]
    return any(eq.primitive is marked_p or _has_marks(eq.params) for one in inner for eq in one.eqns)
