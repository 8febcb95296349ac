"""Sketched features: unit rows, inner products that converge to the kernel, one draw for all sides, and the errors."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.autograd import gradcheck

import condvne as cv
from condvne.core.featuremaps import SketchMethod
from condvne.core.sketches import JointSketch
from tests.references import points, random_weights

DIMS = (5, 4)
GAUSSIAN, LAPLACIAN = cv.Gaussian(2.5), cv.Laplacian(6.0)
QUADRATIC = cv.Polynomial(degree=2)
Sides = tuple[cv.Kernel, ...]
SKETCHES: list[tuple[Sides, SketchMethod]] = [
    ((GAUSSIAN, GAUSSIAN), "fourier"),
    ((GAUSSIAN, GAUSSIAN), "orthogonal"),
    ((LAPLACIAN, LAPLACIAN), "fourier"),
    ((GAUSSIAN, LAPLACIAN), "fourier"),
    ((cv.Cosine(), cv.Cosine()), "dense"),
    ((cv.Cosine(), cv.Cosine()), "tensor"),
    ((cv.Cosine(), cv.Cosine()), "kronecker"),
    ((QUADRATIC, cv.Cosine()), "dense"),
    ((QUADRATIC, cv.Cosine()), "tensor"),
    ((QUADRATIC, cv.Cosine()), "kronecker"),
    ((GAUSSIAN, cv.Cosine()), "mixed"),
    ((QUADRATIC, LAPLACIAN), "mixed"),
    ((GAUSSIAN,), "fourier"),
    ((cv.Cosine(),), "tensor"),
]
each_sketch = pytest.mark.parametrize(
    ("kernels", "method"),
    SKETCHES,
    ids=lambda v: v if isinstance(v, str) else " × ".join(type(k).__name__ for k in v),
)


def drawn(
    kernels: Sides, method: SketchMethod, r: int = 64, seed: int = 0, dtype: torch.dtype = torch.float64
) -> JointSketch:
    return JointSketch.draw(kernels, DIMS[: len(kernels)], r, seed, method=method, dtype=dtype)


def sides_of(kernels: Sides, n: int = 40, seed: int = 3) -> list[Tensor]:
    return [points(n, d, seed + s) for s, d in enumerate(DIMS[: len(kernels)])]


def product_gram(kernels: Sides, sides: list[Tensor]) -> Tensor:
    gram = kernels[0].gram(sides[0])
    for kernel, x in zip(kernels[1:], sides[1:], strict=True):
        gram = gram * kernel.gram(x)
    return gram


def products(features: Tensor) -> Tensor:
    return features @ features.mT


@each_sketch
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-13), (torch.float32, 2e-6)])
def test_rows_have_norm_one_and_so_have_both_halves(
    kernels: Sides, method: SketchMethod, dtype: torch.dtype, tolerance: float
) -> None:
    sketch, sides = drawn(kernels, method, dtype=dtype), sides_of(kernels)
    for features in (sketch.features(*sides), *(sketch.marginal(x, s) for s, x in enumerate(sides))):
        assert features.dtype == dtype
        assert features.shape == (40, 64)
        halves = features.reshape(-1, 2, 32).square().sum(-1)
        torch.testing.assert_close(halves, torch.full_like(halves, 0.5), rtol=tolerance, atol=0)


@each_sketch
def test_error_of_inner_products_falls_with_the_root_of_the_dimension(kernels: Sides, method: SketchMethod) -> None:
    # Hashing errs by collisions, which are rare unless the square of the width is far above r.
    dims = {"tensor": (100, 80), "dense": (8, 7)}.get(method, (12, 10))
    sizes = (64, 256, 1024) if method == "tensor" else (128, 512, 2048, 8192)
    sides = [points(30, d, 3 + s) for s, d in enumerate(dims[: len(kernels)])]
    targets = [product_gram(kernels, sides)] + [k.gram(x) for k, x in zip(kernels, sides, strict=True)]
    errors = torch.zeros(len(targets), len(sizes), dtype=torch.float64)
    for column, r in enumerate(sizes):
        for seed in range(8):
            sketch = JointSketch.draw(kernels, dims[: len(kernels)], r, seed, method=method, dtype=torch.float64)
            maps = [sketch.features(*sides)] + [sketch.marginal(x, s) for s, x in enumerate(sides)]
            for row, (target, features) in enumerate(zip(targets, maps, strict=True)):
                errors[row, column] += (products(features) - target).square().mean() / 8
    log_r = torch.tensor(sizes, dtype=torch.float64).log()
    centred = log_r - log_r.mean()
    slopes = (errors.sqrt().log() @ centred) / centred.square().sum()
    assert ((slopes + 0.5).abs() < 0.08).all(), slopes


@pytest.mark.parametrize("method", ["fourier", "orthogonal"])
def test_fourier_features_are_unbiased(method: SketchMethod) -> None:
    kernels = (GAUSSIAN, GAUSSIAN)
    sides = sides_of(kernels, n=12)
    draws = torch.stack([products(drawn(kernels, method, 64, seed).features(*sides)) for seed in range(600)])
    off = (draws.mean(0) - product_gram(kernels, sides)) / (draws.std(0) / math.sqrt(600) + 1e-12)
    assert off.fill_diagonal_(0).abs().max() < 4.5  # standard errors, the largest of 66 pairs


def test_conditions_and_outputs_have_frequencies_of_their_own() -> None:
    # Shared frequencies would turn K ∘ K of equal sides, exp(-d²/σ²), into exp(-2 d²/σ²).
    x = points(30, 5, 1)
    sketch = JointSketch.draw((GAUSSIAN, GAUSSIAN), (5, 5), 8192, dtype=torch.float64)
    gram = GAUSSIAN.gram(x)
    error = (products(sketch.features(x, x)) - gram.square()).abs()
    assert error.max() < 0.06
    assert (gram.square() - gram**4).abs().max() > 0.2
    frequencies = torch.cat([sketch.tensors["frequencies.0"], sketch.tensors["frequencies.1"]], 1)
    assert (torch.corrcoef(frequencies.mT) - torch.eye(10)).abs().max() < 0.07


@pytest.mark.parametrize(
    ("kernels", "method"),
    [s for s in SKETCHES if len(s[0]) == 2 and s[1] in ("fourier", "kronecker", "tensor")],
)
def test_marginal_of_conditions_is_the_sketch_of_the_same_draw(kernels: Sides, method: SketchMethod) -> None:
    joint = drawn(kernels, method)
    alone = drawn(kernels[:1], method)
    x = points(20, DIMS[0], 5)
    torch.testing.assert_close(joint.marginal(x), alone.features(x), rtol=0, atol=0)


def test_joint_features_are_the_marginal_times_the_other_side() -> None:
    x, y = sides_of((GAUSSIAN, GAUSSIAN))
    sketch = drawn((GAUSSIAN, GAUSSIAN), "fourier")
    torch.testing.assert_close(sketch.features(x, torch.zeros_like(y)), sketch.marginal(x), rtol=1e-12, atol=1e-15)
    torch.testing.assert_close(sketch.features(torch.zeros_like(x), y), sketch.marginal(y, 1), rtol=1e-12, atol=1e-15)


def test_orthogonal_frequencies_are_orthogonal_and_more_accurate() -> None:
    kernels = (GAUSSIAN, GAUSSIAN)
    sketch = drawn(kernels, "orthogonal", r=72)
    frequencies = torch.cat([sketch.tensors["frequencies.0"], sketch.tensors["frequencies.1"]], 1)
    for block in torch.split(frequencies, 9):
        gram = block @ block.mT
        torch.testing.assert_close(gram, gram.diagonal().diag(), rtol=0, atol=1e-12)
    sides = sides_of(kernels)
    target = product_gram(kernels, sides)
    error = {
        method: sum(
            float((products(drawn(kernels, method, 64, s).features(*sides)) - target).norm()) for s in range(30)
        )
        for method in ("fourier", "orthogonal")
    }
    assert error["orthogonal"] < 0.9 * error["fourier"]


def test_frequencies_follow_the_law_of_the_kernel() -> None:
    sketch = JointSketch.draw((LAPLACIAN, GAUSSIAN), (5, 4), 20_000, seed=2)
    cauchy, normal = sketch.tensors["frequencies.0"], sketch.tensors["frequencies.1"]
    assert float(cauchy.abs().median()) == pytest.approx(1.0, abs=0.03)  # quartiles of a Cauchy are ±1
    assert float((cauchy.abs() > 10).float().mean()) == pytest.approx(2 / math.pi * math.atan(0.1), abs=0.005)
    assert float(normal.square().mean()) == pytest.approx(1.0, abs=0.02)


@each_sketch
def test_settings_and_seed_define_the_features(kernels: Sides, method: SketchMethod, tmp_path: Path) -> None:
    sides = sides_of(kernels)
    sketch, again, other = drawn(kernels, method), drawn(kernels, method), drawn(kernels, method, seed=1)
    assert sketch.digest == again.digest != other.digest
    assert torch.equal(sketch.features(*sides), again.features(*sides))
    assert not torch.equal(sketch.features(*sides), other.features(*sides))
    single = drawn(kernels, method, dtype=torch.float32).features(*sides)
    torch.testing.assert_close(single.double(), sketch.features(*sides), rtol=0, atol=2e-5)
    sketch.save(tmp_path / "sketch.safetensors")
    loaded = JointSketch.load(tmp_path / "sketch.safetensors")
    assert torch.equal(loaded.features(*sides), sketch.features(*sides))
    assert (loaded.kernels, loaded.seed, loaded.plan, loaded.digest) == (
        kernels,
        0,
        sketch.plan,
        sketch.digest,
    )


def test_origins_are_saved_and_bandwidths_a_batch_element_too(tmp_path: Path) -> None:
    kernel = cv.Gaussian(torch.tensor([1.0, 3.0], dtype=torch.float64))
    sketch = JointSketch.draw((kernel,), (5,), 16, origins=(points(1, 5, 9)[0],), dtype=torch.float64)
    sketch.save(tmp_path / "s")
    x = points(6, 5, 1, 2)
    assert torch.equal(JointSketch.load(tmp_path / "s").features(x), sketch.features(x))
    for i, bandwidth in enumerate((1.0, 3.0)):
        alone = JointSketch.draw(
            (cv.Gaussian(bandwidth),), (5,), 16, origins=(points(1, 5, 9)[0],), dtype=torch.float64
        )
        torch.testing.assert_close(sketch.features(x)[i], alone.features(x[i]))


def test_a_damaged_or_foreign_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "sketch.safetensors"
    drawn((GAUSSIAN, GAUSSIAN), "fourier").save(path)
    assert list(tmp_path.iterdir()) == [path]
    with safe_open(path, framework="pt") as file:
        tensors, metadata = {k: file.get_tensor(k) for k in file.keys()}, file.metadata()  # noqa: SIM118
    save_file({**tensors, "frequencies.0": tensors["frequencies.0"] + 1e-9}, path, metadata)
    with pytest.raises(cv.DataError, match="does not match its checksum"):
        JointSketch.load(path)
    save_file(tensors, path, {**metadata, "settings": metadata["settings"].replace("gaussian", "nonesuch")})
    with pytest.raises(cv.DataError, match="settings of the sketch cannot be read"):
        JointSketch.load(path)
    save_file(tensors, path)
    with pytest.raises(cv.DataError, match="a condvne sketch was expected"):
        JointSketch.load(path)
    path.write_bytes(b"no tensors")
    with pytest.raises(cv.DataError, match=r"sketch\.safetensors: cannot be read"):
        JointSketch.load(path)
    with pytest.raises(cv.RunError, match=r"there is no folder .*no folder; make it, or"):
        drawn((GAUSSIAN,), "fourier").save(tmp_path / "no folder" / "s")


@each_sketch
def test_features_are_differentiable_in_every_side(kernels: Sides, method: SketchMethod) -> None:
    sketch = drawn(kernels, method, r=8)
    sides = [x.requires_grad_() for x in sides_of(kernels, n=3)]
    assert gradcheck(lambda *xs: sketch.features(*xs), tuple(sides))
    assert gradcheck(sketch.marginal, (sides[0],))


@each_sketch
def test_leading_dimensions_broadcast(kernels: Sides, method: SketchMethod) -> None:
    if len(kernels) == 1:
        kernels = kernels * 2
    sketch = drawn(kernels, method)
    x, y = points(7, DIMS[0], 1, 3), points(7, DIMS[1], 2)
    features = sketch.features(x, y)
    assert features.shape == (3, 7, 64)
    torch.testing.assert_close(features[1], sketch.features(x[1], y), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_single_and_not_under_autocast(dtype: torch.dtype) -> None:
    kernels = (GAUSSIAN, cv.Cosine())
    sketch = drawn(kernels, "mixed", dtype=torch.float32)
    sides = [x.to(dtype) for x in sides_of(kernels)]
    with torch.autocast("cpu", torch.bfloat16):
        features = sketch.features(*sides)
    assert features.dtype == torch.float32
    torch.testing.assert_close(features, sketch.features(*(x.float() for x in sides)), rtol=0, atol=1e-6)


def test_an_origin_keeps_phases_of_distant_data_exact() -> None:
    near = points(50, 5, 1).float() * 1e-2
    far = (near.double() + 1e3).float()
    kernel = cv.Gaussian(0.02)
    gram = kernel.gram(far.double())
    exact = JointSketch.draw((kernel,), (5,), 4096, dtype=torch.float64).features(far.double())
    with_origin = JointSketch.draw((kernel,), (5,), 4096, origins=(far.double().mean(0),)).features(far)
    without = JointSketch.draw((kernel,), (5,), 4096).features(far)
    assert (products(exact) - gram).abs().max() < 0.1
    torch.testing.assert_close(products(with_origin).double(), products(exact), rtol=0, atol=1e-4)
    assert (products(without).double() - products(exact)).abs().max() > 1e-3


@each_sketch
def test_the_concentration_bound_holds(kernels: Sides, method: SketchMethod) -> None:
    sides = sides_of(kernels, n=60)
    w = random_weights(60, 4)
    root = w.sqrt()
    target = root[:, None] * product_gram(kernels, sides) * root
    distances = []
    for seed in range(40):
        sketch = drawn(kernels, method, 128, seed)
        sketched = root[:, None] * products(sketch.features(*sides)) * root
        distances.append(float((sketched - target).norm()))
    assert max(distances) <= sketch.deviation(0.05)
    if method == "fourier":  # this bound is sharp enough to be of use
        assert max(distances) > sketch.deviation(0.05) / 6
    assert sketch.deviation(0.01) >= sketch.deviation(0.05)
    assert math.isinf(sketch.deviation(0.05)) == (method == "orthogonal")


@pytest.mark.parametrize("num_features", [0, -4, 6, 7, 2.5, True])
def test_a_number_of_features_without_halves_of_pairs_is_refused(num_features: int) -> None:
    with pytest.raises(cv.InputError, match=rf"positive multiple of 4 .* but is {num_features}; use (4|8)\."):
        JointSketch.draw((GAUSSIAN,), (3,), num_features)


@pytest.mark.parametrize(
    ("kernels", "dims", "method", "message"),
    [
        (
            (cv.Delta(),),
            (3,),
            "auto",
            "Delta kernel has no random features.*one-hot rows under the cosine kernel",
        ),
        (
            (cv.Gaussian(),),
            (3,),
            "auto",
            r"Gaussian: a sketch needs a fixed bandwidth; fix it with kernel\.fit",
        ),
        (
            (GAUSSIAN,),
            (3,),
            "tensor",
            r"Gaussian of dimensions \(3,\) cannot be sketched by 'tensor': use fourier",
        ),
        ((LAPLACIAN, GAUSSIAN), (3, 3), "orthogonal", "cannot be sketched by 'orthogonal': use fourier"),
        (
            (cv.Cosine(), cv.Cosine()),
            (80, 80),
            "dense",
            "cannot be sketched by 'dense': use tensor or kronecker",
        ),
        ((cv.Cosine(), GAUSSIAN), (3, 3), "fourier", "cannot be sketched by 'fourier': use mixed"),
        ((GAUSSIAN,), (3,), "magic", "method of a sketch must be one of auto, fourier"),
        ((GAUSSIAN,), (3, 3), "auto", "one or two kernels and as many dims, but got 1 and 2"),
        ((GAUSSIAN,), (0,), "auto", "dims of a sketch must be positive integers"),
    ],
)
def test_kernels_and_methods_that_do_not_go_together_are_refused(
    kernels: Sides, dims: tuple[int, ...], method: SketchMethod, message: str
) -> None:
    with pytest.raises(cv.InputError, match=message):
        JointSketch.draw(kernels, dims, 64, method=method)


def test_features_of_other_shapes_are_refused() -> None:
    sketch = drawn((GAUSSIAN, cv.Cosine()), "mixed")
    x, y = sides_of((GAUSSIAN, GAUSSIAN))
    with pytest.raises(cv.InputError, match="has 2 sides, but 1 tensors came"):
        sketch.features(x)
    with pytest.raises(
        cv.InputError, match=r"side 1 of the sketch takes \(\.\.\., n, 4\) features, but got shape \(40, 5\)"
    ):
        sketch.features(x, x)
    with pytest.raises(cv.InputError, match="x has 40 rows and y has 1"):
        sketch.features(x, y[:1])
    with pytest.raises(cv.InputError, match="there is no side 2"):
        sketch.marginal(x, 2)
    with pytest.raises(cv.InputError, match="rows 0, 1, 2, 3, 4 are zero"):
        sketch.features(x, torch.zeros_like(y))
    with pytest.raises(cv.InputError, match="origin of side 0 must be 5 finite numbers"):
        JointSketch.draw((GAUSSIAN,), (5,), 8, origins=(torch.zeros(4),))
    with pytest.raises(cv.InputError, match="dtype of a sketch must be float32 or float64"):
        JointSketch.draw((GAUSSIAN,), (5,), 8, dtype=torch.float16)


def test_a_row_that_hashing_cancels_is_named() -> None:
    sketch = JointSketch.draw((cv.Cosine(),), (64,), 4, method="tensor", dtype=torch.float64)
    bucket, sign = sketch.tensors["bucket.0.0"][0], sketch.tensors["sign.0.0"][0]
    first = 0
    second = next(i for i in range(1, 64) if bucket[i] == bucket[first] and sign[i] != sign[first])
    x = torch.eye(64, dtype=torch.float64)[[5, first]]
    x[1, second] = 1.0
    with pytest.raises(cv.InputError, match="row 1 vanishes in a sketch of 4 features; use more, or another seed"):
        sketch.features(x)


@pytest.mark.parametrize(("kernels", "method"), [s for s in SKETCHES if s[1] in ("fourier", "orthogonal", "mixed")])
def test_a_shift_of_the_data_changes_no_inner_product(kernels: Sides, method: SketchMethod) -> None:
    sides = sides_of(kernels)
    origins = [points(1, x.shape[1], 8)[0] for x in sides]
    shifted = JointSketch.draw(kernels, DIMS[: len(kernels)], 64, method=method, origins=origins, dtype=torch.float64)
    plain = drawn(kernels, method)
    torch.testing.assert_close(products(shifted.features(*sides)), products(plain.features(*sides)), rtol=0, atol=1e-12)
