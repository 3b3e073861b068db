"""DuRNN against two implementations that share no code with it, in float64.

``step_by_step`` unrolls Eqs. (1)-(5) sample by sample and leaves the gradients to autograd, with the cuts of §IV-A.
``section_iv`` and ``appendix`` compute the printed formulas by hand, without autograd.
"""

import pytest
import torch

import models

T, B, M, N = 6, 3, 2, 5
PARAMETERS = ("W_in", "W_rec", "b_short", "W_ss", "W_ls", "b_s", "b_thre", "W_s", "U", "b_long")
TOLERANCE = 1e-12


@pytest.fixture(params=range(4))
def case(request):
    """A layer with every gate and unit at work, an input, and a weight for each output: Loss = Σ_t <w_t, h_t>."""
    torch.manual_seed(request.param)
    net = models.DuRNN(M, N, length=T, dtype=torch.float64, seed=request.param)
    layer = net.layers[0]
    with torch.no_grad():
        layer.W_ls.mul_(10)
        layer.b_long.uniform_(-0.5, 0.2)
        layer.b_short.uniform_(-0.1, 0.5)
        layer.U.uniform_(0.5, 1.2)
        layer.b_thre.fill_(0.25)
    x = torch.randn(T, B, M, dtype=torch.float64, requires_grad=True)
    h0 = torch.rand(2, 1, B, N, dtype=torch.float64).requires_grad_()
    return net, x, h0, torch.randn(T, B, N, dtype=torch.float64)


def suite_gradients(net, x, h0, w):
    y, _ = net(x, (h0[0], h0[1]))
    leaves = {name: getattr(net.layers[0], name) for name in PARAMETERS} | {"x": x, "h0": h0}
    grads = torch.autograd.grad((y * w).sum(), list(leaves.values()))
    return y.detach(), dict(zip(leaves, grads, strict=True))


def step_by_step(net, x, h0, w, mistake=None):
    """Eqs. (1)-(5), one sample and one step at a time; ``mistake`` puts a plausible error in."""
    p = {name: getattr(net.layers[0], name).detach().clone().requires_grad_() for name in PARAMETERS}
    leaves = p | {"x": x.detach().clone().requires_grad_(), "h0": h0.detach().clone().requires_grad_()}
    outputs = []
    for b in range(B):
        h_short, h = leaves["h0"][0, 0, b], leaves["h0"][1, 0, b]
        for t in range(T):
            W_rec = p["W_rec"] * (0.9 if mistake == "W_rec scaled" else 1)
            h_short = torch.relu(p["W_in"] @ leaves["x"][t, b] + W_rec @ h_short + p["b_short"])
            read_short = h_short if mistake in ("S not cut at h~", "S not cut") else h_short.detach()
            read_long = h if mistake in ("S not cut at h", "S not cut") else h.detach()
            v = p["W_ss"] @ read_short + p["W_ls"] @ read_long + p["b_s"]
            low, high = v.min(), v.max()
            if mistake != "min and max differentiated":
                low, high = low.detach(), high.detach()
            S = torch.relu((v - low) / (high - low) - p["b_thre"])
            i = S * h_short
            remembered = h_short if mistake == "U on h~" else h
            h = torch.relu(p["W_s"] @ i + p["U"] * remembered + p["b_long"])
            outputs.append(h)
    y = torch.stack(outputs).view(B, T, N).transpose(0, 1)
    grads = torch.autograd.grad((y * w).sum(), list(leaves.values()))
    return y.detach(), dict(zip(leaves, grads, strict=True))


def states(net, x, h0):
    """All h~, h, S, mm' and derivatives of relu by Eqs. (1)-(5), (T+1 or T, B, N), without autograd."""
    p = {name: getattr(net.layers[0], name).detach() for name in PARAMETERS}
    short, long = [h0[0, 0].detach()], [h0[1, 0].detach()]
    S, slope, open_ = [], [], []
    for t in range(T):
        short.append((x[t].detach() @ p["W_in"].T + short[-1] @ p["W_rec"].T + p["b_short"]).clamp(min=0))
        v = short[-1] @ p["W_ss"].T + long[-1] @ p["W_ls"].T + p["b_s"]
        spread = v.max(1, keepdim=True).values - v.min(1, keepdim=True).values
        m = (v - v.min(1, keepdim=True).values) / spread
        S.append((m - p["b_thre"]).clamp(min=0))
        slope.append((1 / spread).expand(B, N))
        open_.append((m > p["b_thre"]).double())
        long.append(((S[-1] * short[-1]) @ p["W_s"].T + p["U"] * long[-1] + p["b_long"]).clamp(min=0))
    return p, torch.stack(short), torch.stack(long), torch.stack(S), torch.stack(slope), torch.stack(open_)


def section_iv(net, x, h0, w, mistake=None):
    """The iterative formulas of §IV-A: Eqs. (13), (14) backwards in time, then one sum per parameter."""
    p, short, long, S, slope, open_ = states(net, x, h0)
    sigma_f, sigma_s = (short[1:] > 0).double(), (long[1:] > 0).double()
    d_long, d_short = torch.zeros(T + 1, B, N).double(), torch.zeros(T + 1, B, N).double()
    W_rec = p["W_rec"].T if mistake == "W_rec transposed" else p["W_rec"]
    for t in reversed(range(T)):
        carried = p["U"] * (sigma_s[t + 1] if t + 1 < T else 0) * d_long[t + 1]
        d_long[t] = w[t] + (0 if mistake == "long carry dropped" else carried)  # (13)
        through_selection = S[t] * ((sigma_s[t] * d_long[t]) @ p["W_s"])  # dS_t, (10)
        d_short[t] = through_selection + ((sigma_f[t + 1] if t + 1 < T else 0) * d_short[t + 1]) @ W_rec  # (14)
    G, F = sigma_s * d_long[:T], sigma_f * d_short[:T]
    into_S = (G @ p["W_s"]) * short[1:] * open_
    into_v = into_S * (1 if mistake == "mm' dropped" else slope)
    return {
        "U": (G * long[:-1]).sum((0, 1)),
        "W_rec": torch.einsum("tbi,tbj->ij", F, short[:-1]),
        "W_in": torch.einsum("tbi,tbj->ij", F, x.detach()),
        "W_s": torch.einsum("tbi,tbj->ij", G, S * short[1:]),
        "W_ss": torch.einsum("tbi,tbj->ij", into_v, short[1:]),
        "W_ls": torch.einsum("tbi,tbj->ij", into_v, long[:-1]),
        "b_thre": -into_S.sum(),
        "b_short": F.sum((0, 1)),
        "b_s": into_v.sum((0, 1)),
        "b_long": G.sum((0, 1)),
    }


def appendix(net, x, h0, w):
    """The appendix's sums over t >= m >= k of explicit products of Jacobians, one sample at a time."""
    p, short, long, S, slope, open_ = states(net, x, h0)
    sigma_f, sigma_s = (short[1:] > 0).double(), (long[1:] > 0).double()
    total = {name: torch.zeros_like(p[name]) for name in ("U", "W_s", "W_ss", "W_ls", "b_thre", "W_rec", "W_in")}
    for b in range(B):
        for t in range(T):
            for k in range(t + 1):
                to_long = torch.eye(N).double()  # ∂h_t/∂h_k
                for j in range(k + 1, t + 1):
                    to_long = to_long @ torch.diag(p["U"] * sigma_s[j, b])
                g = sigma_s[k, b] * (to_long @ w[t, b])  # ∂Loss_t/∂h_k behind relu
                into_S = (p["W_s"].T @ g) * short[k + 1, b] * open_[k, b]
                into_v = into_S * slope[k, b]
                total["U"] += g * long[k, b]
                total["W_s"] += torch.outer(g, S[k, b] * short[k + 1, b])
                total["W_ss"] += torch.outer(into_v, short[k + 1, b])
                total["W_ls"] += torch.outer(into_v, long[k, b])
                total["b_thre"] -= into_S.sum()
                for m in range(k, t + 1):
                    path = torch.eye(N).double()  # ∂h_t/∂h_m
                    for j in range(m + 1, t + 1):
                        path = path @ torch.diag(p["U"] * sigma_s[j, b])
                    into_short = torch.diag(S[m, b]) @ p["W_s"].T @ torch.diag(sigma_s[m, b]) @ path @ w[t, b]
                    for j in range(m, k, -1):
                        into_short = p["W_rec"].T @ (sigma_f[j, b] * into_short)
                    total["W_rec"] += torch.outer(sigma_f[k, b] * into_short, short[k, b])
                    total["W_in"] += torch.outer(sigma_f[k, b] * into_short, x[k, b].detach())
    return total


def assert_equal(got, expected):
    for name, value in expected.items():
        torch.testing.assert_close(got[name], value, rtol=TOLERANCE, atol=TOLERANCE, msg=lambda m, n=name: f"{n}: {m}")


def test_case_exercises_both_sides_of_every_relu(case):
    net, x, h0, _ = case
    _, short, long, S, _, open_ = states(net, x, h0)
    for name, values in {"h~": short[1:], "h": long[1:], "S": S, "open": open_}.items():
        share = (values > 0).double().mean()
        assert 0.1 < share < 1, f"{name} is positive in {share:.0%} of the places"


def test_outputs_and_all_gradients_equal_a_step_by_step_implementation(case):
    y, grads = suite_gradients(*case)
    y_expected, expected = step_by_step(*case)
    torch.testing.assert_close(y, y_expected, rtol=TOLERANCE, atol=TOLERANCE)
    assert_equal(grads, expected)


def test_gradients_equal_the_formulas_of_section_iv(case):
    _, grads = suite_gradients(*case)
    assert_equal(grads, section_iv(*case))


def test_gradients_equal_the_formulas_of_the_appendix(case):
    _, grads = suite_gradients(*case)
    assert_equal(grads, appendix(*case))


def test_layer_step_is_the_forward_pass(case):
    net, x, h0, _ = case
    layer, h_short, h = net.layers[0], h0[0, 0], h0[1, 0]
    for u_t in layer.project(x):
        _, (h_short, h) = layer.step(u_t, (h_short, h))
    _, (final_short, final_long) = net(x, (h0[0], h0[1]))
    torch.testing.assert_close((final_short[0], final_long[0]), (h_short, h), rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize(
    "mistake", ["S not cut at h~", "S not cut at h", "min and max differentiated", "U on h~", "W_rec scaled"]
)
def test_a_mistake_in_the_model_is_caught(case, mistake):
    y, grads = suite_gradients(*case)
    y_wrong, wrong = step_by_step(*case, mistake=mistake)
    with pytest.raises(AssertionError):
        assert_equal({"y": y} | grads, {"y": y_wrong} | wrong)


@pytest.mark.parametrize("mistake", ["long carry dropped", "mm' dropped", "W_rec transposed"])
def test_a_mistake_in_the_formulas_is_caught(case, mistake):
    _, grads = suite_gradients(*case)
    with pytest.raises(AssertionError):
        assert_equal(grads, section_iv(*case, mistake=mistake))


def test_exact_minmax_option_differentiates_min_and_max(case):
    net, x, h0, w = case
    net.layers[0].exact_minmax = True
    _, grads = suite_gradients(net, x, h0, w)
    _, expected = step_by_step(net, x, h0, w, mistake="min and max differentiated")
    assert_equal(grads, expected)


def test_cut_gradient_option_leaves_the_gradients_through_the_selection_in(case):
    net, x, h0, w = case
    net.layers[0].cut_gradient = False
    y, grads = suite_gradients(net, x, h0, w)
    y_expected, expected = step_by_step(net, x, h0, w, mistake="S not cut")
    assert_equal({"y": y} | grads, {"y": y_expected} | expected)


@pytest.mark.parametrize("short", ["full", "independent"])
@pytest.mark.parametrize("selection", [True, False])
def test_ablations_are_the_stated_equations(short, selection):
    torch.manual_seed(0)
    net = models.DuRNN(M, N, length=T, dtype=torch.float64, seed=1, short=short, selection=selection)
    layer, x = net.layers[0], torch.randn(T, B, M, dtype=torch.float64)
    h_short, h = torch.zeros(B, N).double(), torch.zeros(B, N).double()
    for x_t in x:
        recurrent = h_short @ layer.W_rec.T if short == "full" else layer.U_short * h_short
        h_short = torch.relu(x_t @ layer.W_in.T + recurrent + layer.b_short)
        S = layer.select(h_short, h) if selection else 1.0
        h = torch.relu((S * h_short) @ layer.W_s.T + layer.U * h + layer.b_long)
    torch.testing.assert_close(net(x)[0][-1], h, rtol=TOLERANCE, atol=TOLERANCE)
    assert hasattr(layer, "W_ss") == selection
    assert hasattr(layer, "W_rec") == (short == "full")
