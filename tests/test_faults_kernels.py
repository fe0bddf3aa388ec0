"""A check can fail: deliberate faults in the kernels, each caught by the test that is named beside it.

A fault replaces a piece of a kernel's source text and runs the module anew; every kernel that had imported one of its names gets the new
one. The end of the test undoes it. A fault whose text is no longer there fails loudly: look for its new form.
"""

import importlib
import inspect
import sys
from contextlib import contextmanager

import pytest
import test_laws as laws
import test_model_oracle as whole
import test_overlap_oracle as forms


@contextmanager
def fault(module, old, new):
    """``kernels.module`` with ``old`` replaced by ``new``."""
    target = importlib.import_module(f"kernels.{module}")
    source = inspect.getsource(target)
    assert source.count(old) == 1, f"kernels/{module}.py holds {source.count(old)} times: {old}"
    kernels = [m for name, m in sys.modules.items() if name.startswith("kernels.")]
    before = {m: dict(vars(m)) for m in kernels}
    try:
        exec(compile(source.replace(old, new), target.__file__, "exec"), vars(target))
        own = {name: value for name, value in before[target].items() if getattr(value, "__module__", None) == target.__name__}
        for other in kernels:
            for name, value in list(vars(other).items()):
                for key, original in own.items():
                    if other is not target and value is original:
                        setattr(other, name, vars(target)[key])
        yield
    finally:
        for kernel, names in before.items():
            vars(kernel).clear()
            vars(kernel).update(names)


def steps(kind, calibrated=False):
    """The whole-step test of one kind of design."""
    return lambda: whole.test_whole_steps(kind, calibrated)


FAULTS = {  # name: (module, text, fault, test that catches it)
    # buckets
    "the tail is dropped": ("overlap", "indices = [minimum(1.0, last), positive(last - 1.0), last]", "indices = [minimum(1.0, last)]",
                            forms.test_buckets_are_exact),
    "no candidates at the kinks": ("overlap", "indices += [positive(index - 1.0), index] +", "indices += [] +", forms.test_buckets_are_exact),
    "the last bucket is a full one": ("overlap", "everything - positive(tail), everything)", "0.0, size)", forms.test_buckets_are_exact),
    "the first bucket is any bucket": ("overlap", "first = minimum(first_bytes, everything)", "first = minimum(size, everything)",
                                       forms.test_buckets_are_exact),
    "the embedding has a window": ("overlap", "return head + blocks + end", "return head + blocks", forms.test_buckets_are_exact),
    "compute does not slow down": ("overlap", "(1.0 - both) / (1.0 + comm_slowdown), slowdown / (1.0 + slowdown)",
                                   "(1.0 - both) / (1.0 + comm_slowdown), 0.0 * slowdown", forms.test_contention_is_exact),
    "fragments hide everything": ("overlap", "return maximum(period_s + comm_s / fragments, comm_s + period_s / fragments)",
                                  "return maximum(period_s, comm_s)", forms.test_diloco_is_exact),
    "prefetch of any depth": ("sharding", "    depth = minimum(prefetch, blocks - 1)\n", "    depth = blocks - 1\n", forms.test_fsdp_is_exact),
    "one Newton step": ("overlap", "NEWTON_STEPS = 4", "NEWTON_STEPS = 1", laws.test_setting_the_link_to_the_answer_meets_the_tolerance),
    # collectives
    "2 (n-1)/n is 2": ("collectives", "2.0 * (n - 1) / n * nbytes / bytes_per_s\n\n\ndef ring_half_s", "2.0 * nbytes / bytes_per_s\n\n\ndef ring_half_s",
                       forms.test_ring_all_reduce_hop_by_hop),
    "n_in is ignored": ("collectives", "return where(net.rails_one, 1.0, 1.0 / group.n_in)", "return 1.0", forms.test_collectives_phase_by_phase),
    "latency is ignored": ("collectives", "return Algorithm(HIERARCHICAL, passes * _hops(group, net)", "return Algorithm(HIERARCHICAL, 0.0",
                           forms.test_collectives_phase_by_phase),
    "oversubscription is ignored": ("collectives", "return (middle + net.oversubscription * top)", "return (middle + top)",
                                    forms.test_collectives_phase_by_phase),
    "phases overlap for free": ("collectives", "return slowest + (inner + outer - slowest) / chunks", "return slowest",
                                forms.test_hierarchical_in_chunks_is_an_upper_bound_within_20_percent),
    # pipelines
    "one micro-batch too many": ("schedule", "first + last + (m - 1.0) * slowest", "first + last + m * slowest", steps("pipeline")),
    "interleaving leaves the bubble": ("schedule", "(pp - 1.0) / vpp * stages.middle", "(pp - 1.0) * stages.middle", steps("interleaved")),
    "hops go one way": ("schedule", "fill, steady = 2.0 * (pp - 1.0)", "fill, steady = (pp - 1.0)", steps("pipeline")),
    "no slack": ("schedule", "return where(x.schedule == ONE_F_ONE_B, below, 0.0)", "return 0.0 * below", forms.test_slack_of_the_last_stage),
    "zero bubble has none": ("schedule", "stage_0 = (pp - 1.0) * passes", "stage_0 = 0.0 * passes", steps("zb-h1")),
    "the window of all micro-batches": ("times", "window = where(apart, compute.block_wgrad_s, backward)",
                                        "window = where(apart, compute.block_wgrad_s, backward * x.micro_batches)", steps("plain")),
    # data parallelism
    "the gather is free": ("reduction", "return Term(candidates, present), ends", "return Term(candidates, 0.0 * present), ends", steps("zero")),
    "ZeRO-2 reduces once": ("reduction", "every = where((x.zero_stage == 2), x.micro_batches, 1.0)", "every = 1.0", steps("zero")),
    "experts reduce over everybody": ("placement", "moe = x.at_most(\"experts\") > 0\n    if not moe:", "moe = x.at_most(\"experts\") > 0\n    x = x._replace(ep=x.tp)\n    if not moe:",
                                      steps("experts")),
    "a rank of DualPipe holds one stage": ("schedule", "return where(x.schedule == DUALPIPE, 2.0, 1.0)", "return 1.0", steps("dualpipe")),
    "the other holder is next door": ("placement", "group.n_in * where(domain, two, 1.0)", "group.n_in * two", steps("dualpipe")),
    "buckets of two stages side by side": ("reduction", "plus(item.counts, first.counts, both)) for item in last.candidates",
                                           "item.counts) for item in last.candidates", steps("dualpipe")),
    "the embedding has no gradient": ("reduction", "embedding_bytes=embedding,", "embedding_bytes=0.0 * embedding,", steps("plain")),
    "one micro-batch is sharded": ("reduction", "every = x.micro_batches * x.vpp + x.pp - 1.0", "every = 1.0", steps("sharded")),
    "the fill gathers nothing": ("reduction", "every = x.micro_batches * x.vpp + x.pp - 1.0", "every = x.micro_batches * x.vpp",
                                 steps("sharded-pipeline")),
    "one pass has a root unit": ("reduction", "x.micro_batches + more, x.micro_batches) / every", "1.0, x.micro_batches) / every",
                                 steps("sharded-pipeline")),
    "chunks are gathered once": ("reduction", "blocks, forward, backward = x.layers / (x.pp * x.vpp)", "blocks, forward, backward = x.layers / x.pp",
                                 steps("sharded-pipeline")),
    "the head hides its root unit": ("reduction", "begin, rest = times.stages.first_forward * _single(x)",
                                     "begin, rest = times.stages.first_forward", steps("sharded-pipeline", True)),
    "passes that hide gathers are longer": ("sharding", "fsdp_backward(blocks, input_s, depth, last)", "fsdp_backward(blocks, 4.0 * input_s, depth, last)",
                                      steps("sharded-pipeline")),
    "shards cross whole": ("reduction", "x.grad_bytes * work.block_params / x.shard_group", "x.grad_bytes * work.block_params", steps("hsdp")),
    "stages do not delay each other": ("reduction", "many * every, least=True", "0.0 * many, least=True", steps("contention")),
    "chunks do not wait for those above": ("reduction", "counts = plus(plus(item.counts, middle.counts, index - 1.0), lowest.counts)",
                                           "counts = item.counts", steps("interleaved")),
    "slowed chunks delay nobody": ("reduction", "many * every, least=True", "0.0 * many, least=True", steps("contended-chunks")),
    "synchronised every step": ("reduction", '{"fragment": 1.0 / every}', '{"fragment": 1.0}', steps("rare")),
    # inside a block
    "one all-reduce a block": ("traffic", "count = 2.0 - work.moe_share", "count = 1.0 - work.moe_share", lambda: whole.test_traffic_of_a_block("plain")),
    "keys go once too often": ("traffic", "ranks, more = x.cp - 1.0", "ranks, more = x.cp", lambda: whole.test_traffic_of_a_block("context")),
    "the ring hides under the norms": ("traffic", "back = 2.0 * ahead", "back = (compute.block_dgrad_s - compute.block_wgrad_s) / x.cp",
                                       lambda: whole.test_traffic_of_a_block("context")),
    "a recomputed core has its keys": ("traffic", "(SELECTIVE if core else FULL)", "FULL", lambda: whole.test_traffic_of_a_block("context")),
    "a token has one expert": ("traffic", "elements = tokens(x) * x.top_k * x.hidden", "elements = tokens(x) * x.hidden",
                               lambda: whole.test_traffic_of_a_block("experts")),
    "every tp rank sends the whole hop": ("traffic", "x.hidden * ACTIVATION_BYTES / x.tp\n", "x.hidden * ACTIVATION_BYTES\n", steps("pipeline")),
    # laws and status
    "two domains are many": ("outputs", "ring = 2.0 * (group.n_out - 1.0) / group.n_out", "ring = 2.0", laws.test_what_moves_the_first_order_law),
    "heads need not divide": ("inputs", '"heads": heads,', '"heads": False,', whole.test_status_names_the_first_reason),
}


@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_caught(name, monkeypatch):
    module, old, new, test = FAULTS[name]
    monkeypatch.setattr(whole, "COUNT", 40 * 2 * len(whole.KINDS))
    with fault(module, old, new), pytest.raises(AssertionError):
        test()


def test_a_fault_is_undone():
    before = forms.overlap.NEWTON_STEPS, forms.overlap.buckets
    with fault("overlap", "NEWTON_STEPS = 4", "NEWTON_STEPS = 1"):
        assert forms.overlap.NEWTON_STEPS == 1 and forms.overlap.buckets is not before[1]
    assert (forms.overlap.NEWTON_STEPS, forms.overlap.buckets) == before
