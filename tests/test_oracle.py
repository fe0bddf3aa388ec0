"""The event simulator against cases worked out by hand: it judges the kernels, so it is judged first."""

import pytest
from oracle import network, pipeline, reduction, streams
from oracle.engine import Graph, contention, shared_link

close = pytest.approx


# -- engine ------------------------------------------------------------------------------------------------------------


def test_streams_run_in_order_and_wait():
    graph = Graph()
    first = graph.task(3.0, "a")
    other = graph.task(5.0, "b", [first])
    third = graph.task(1.0, "a")  # behind first on its stream, not behind other
    last = graph.task(2.0, "a", [other])
    assert graph.run() == [3.0, 8.0, 4.0, 10.0]
    assert (third, last) == (2, 3)


def test_a_delay_occupies_nobody():
    graph = Graph()
    graph.task(2.0)
    graph.task(2.0)
    assert graph.run() == [2.0, 2.0]


def test_tasks_that_wait_for_each_other_are_refused():
    graph = Graph()
    one, two = graph.task(1.0, "a"), graph.task(1.0, "b")
    graph.wait(one, two)
    graph.wait(two, one)
    with pytest.raises(RuntimeError, match="wait for each other"):
        graph.run()


def test_contention_by_hand():
    # comm 4 s at full speed; compute does 4/1.5 in them and 10 - 2.667 alone
    graph = Graph()
    graph.task(10.0, "compute")
    graph.task(4.0, "comm")
    assert graph.run(contention(0.5, 0.0)) == close([4.0 + 10.0 - 4.0 / 1.5, 4.0])
    # both slow: comm takes 4 * 1.25 = 5 s, compute does 5/1.5 in them
    assert graph.run(contention(0.5, 0.25)) == close([5.0 + 10.0 - 5.0 / 1.5, 5.0])


def test_two_transfers_share_a_link():
    graph = Graph()
    graph.task(1.0, "up")
    graph.task(3.0, "down")
    assert graph.run(shared_link(["up", "down"])) == close([2.0, 4.0])


def test_rates_of_one_give_the_free_run():
    graph = Graph()
    before = None
    for k in range(20):
        before = graph.task(0.1 * k, "compute", [before] if k % 3 == 0 else [])
        graph.task(0.17 * k, "comm", [before])
    assert graph.run(contention(0.0, 0.0)) == close(graph.run(), abs=1e-14)


# -- buckets -----------------------------------------------------------------------------------------------------------


def test_100_layers():
    """100 layers, all-reduce 100 ms, backward 80 ms in total: 100.8 ms."""
    slices = reduction.cut_buckets([(1.0, 0.8)] * 100, 1.0)
    ends = reduction.reduction(slices, lambda size, _: size * 1.0)
    assert ends.comm == close(100.8, rel=1e-12)
    assert ends.exposed == close(20.8, rel=1e-12)


def test_ten_layers_two_a_bucket():
    """10 layers of 5 ms backward and 3 ms all-reduce, two layers a bucket: 56 ms, 80 % hidden."""
    ends = reduction.reduction(reduction.cut_buckets([(1.0, 5.0)] * 10, 2.0), lambda size, _: 3.0 * size)
    assert ends.comm == close(56.0) and 1 - ends.exposed / ends.busy == close(0.8)


def test_straddling_buckets_by_hand():
    # head 2 B in 2 s, block 3 B in 1 s, embedding 2 B at once; buckets of 4: full after 2 s + 2/3 s, rest 3 B at the end (3 s)
    slices = reduction.cut_buckets([(2.0, 2.0), (3.0, 1.0), (2.0, 0.0)], 4.0)
    assert [bucket for _, bucket in slices if bucket] == [(4.0, 0.0), (3.0, 0.0)]
    ends = reduction.reduction(slices, lambda size, _: 0.5 * size)
    assert ends.comm == close(2 + 2 / 3 + 2 + 1.5) and ends.exposed == close(2 + 2 / 3 + 3.5 - 3)


def test_first_bucket_and_experts():
    slices = reduction.cut_buckets([(2.0, 0.0), (6.0, 3.0, 3.0)], 4.0, 1.0)
    assert [bucket for _, bucket in slices if bucket] == [(1.0, 0.0), (4.0, 1.5), (3.0, 1.5)]


def test_whole_tensors_close_at_the_first_size_that_reaches_the_cap():
    slices = reduction.whole_buckets([(10.0, 1.0), (1.0, 1.0), (2.0, 1.0), (2.0, 1.0), (1.0, 1.0)], 3.0)
    assert [bucket[0] for _, bucket in slices if bucket] == [10.0, 3.0, 3.0]


def test_late_buckets_wait_for_their_block():
    segments, service = [(2.0, 2.0), (2.0, 2.0)], lambda size, _: 0.1
    early = reduction.reduction(reduction.cut_buckets(segments, 1.0), service)
    late = reduction.reduction(reduction.late_buckets(segments, 1.0), service)
    assert early.comm == close(4.1) and late.comm == close(4.2)


def test_slow_down_is_exposed():
    # one bucket ready at 1 s, 2 s long; the last 3 s of compute begin with 2 s at 1/1.5
    ends = reduction.reduction([(1.0, (1.0, 0.0)), (3.0, None)], lambda *_: 2.0, slowdown=0.5)
    assert ends.compute == close(1 + 2 + (3 - 2 / 1.5)) and ends.exposed == close(2 - 2 / 1.5)


# -- FSDP --------------------------------------------------------------------------------------------------------------


def test_fsdp_by_hand():
    assert reduction.fsdp_forward([2.0] * 3, [1.0] * 3) == close(2 * 3 + 1)  # bound by gathers
    assert reduction.fsdp_forward([1.0] * 3, [2.0] * 3) == close(1 + 2 * 3)  # the first gather is exposed
    # gathers of 2 hide under 3; scatters of 1 too, but for the last
    assert reduction.fsdp_backward([1.0] * 3, [3.0] * 3, [1.0] * 3) == close(10.0)
    # stream: gather 1 (1), scatter 0 (1-3 + 4), gather 2, scatter 1, scatter 2, bound by the link
    assert reduction.fsdp_backward([1.0] * 3, [1.0] * 3, [4.0] * 3) == close(1 + 4 + 1 + 4 + 4)
    assert reduction.fsdp_backward([1.0] * 3, [3.0] * 3, [1.0] * 3, keep_last=False) == close(11.0)


def test_hsdp_by_hand():
    assert reduction.hsdp_backward([4.0] * 3, [1.0] * 3, [2.0] * 3) == close(12 + 1 + 2)
    assert reduction.hsdp_backward([1.0] * 3, [1.0] * 3, [2.0] * 3) == close(1 + 1 + 3 * 2)


# -- pipelines ---------------------------------------------------------------------------------------------------------


def equal(stages, chunks, seconds):
    return [[seconds] * chunks for _ in range(stages)]


def test_1f1b_by_hand():
    assert pipeline.pipeline_seconds(equal(2, 1, 1.0), equal(2, 1, 2.0), 2) == 9.0
    # 0: F at 0, 1; 1: F 1.5-2.5, B 2.5-4.5, F, B 5.5-7.5; 0: B 5-7, 8-10
    assert pipeline.pipeline_seconds(equal(2, 1, 1.0), equal(2, 1, 2.0), 2, hop=0.5) == 10.0


def test_orders_by_hand():
    assert pipeline.order_1f1b(0, 2, 3) == [("F", 0, 0), ("F", 0, 1), ("B", 0, 0), ("F", 0, 2), ("B", 0, 1), ("B", 0, 2)]
    # Megatron, pp 2, vpp 2, m 2, last rank: 2 ahead, chunk 0 twice, then one by one
    assert pipeline.order_interleaved(1, 2, 2, 2) == [
        ("F", 0, 0), ("F", 0, 1), ("F", 1, 0), ("B", 1, 0), ("F", 1, 1), ("B", 1, 1), ("B", 0, 0), ("B", 0, 1)]
    assert pipeline.order_zb_h1(1, 2, 2) == [("F", 0, 0), ("B", 0, 0), ("F", 0, 1), ("B", 0, 1), ("W", 0, 0), ("W", 0, 1)]


def test_interleaving_divides_the_bubble():
    assert pipeline.pipeline_seconds(equal(2, 2, 0.5), equal(2, 2, 1.0), 2) == 7.5


def test_zero_bubble_by_hand():
    # pp 2, all passes 1 s: stage 0 F F . B W B W, 7 s, against 9 s of 1F1B
    assert pipeline.pipeline_seconds(equal(2, 1, 1.0), equal(2, 1, 1.0), 2, schedule="zb-h1", weight=equal(2, 1, 1.0)) == 7.0


def test_dualpipe_bubble_of_the_report():
    # (pp/2 - 1)(F&B + B - 3W) with all passes 1 s: 2 s on top of 8 micro-batches of 3 s
    assert max(pipeline.dualpipe([1.0] * 4, [1.0] * 4, [1.0] * 4, 8).graph.run()) == 26.0
    for rank in range(4):
        order = pipeline.order_dualpipe(rank, 4, 8)
        assert sum(kind in "F+" for kind, *_ in order) == sum(kind in "bB+" for kind, *_ in order) == 8


def test_last_backward_with_buckets_and_gather_by_hand():
    # stage 1: B of 2 s in two halves, each a bucket of 3 s: 1 + 1 + 6 after its forward at 2; stage 0 has no gradients
    last = [[[(2.0, None)]], [[(1.0, (1.0, 0.0)), (1.0, (1.0, 0.0))]]]
    one = pipeline.pipeline(equal(2, 1, 1.0), equal(2, 1, 2.0), 1, last=last, service=lambda *_: 3.0)
    assert max(one.graph.run()) == 9.0
    wait = pipeline.Gather([(0.5, 0.0, 0.0), (1.0, 0.5, 0.0), (1.0, 0.5, 0.0)], False)
    two = pipeline.pipeline(equal(2, 1, 1.0), equal(2, 1, 2.0), 1, gather=[[wait], [wait._replace(units=wait.units[1:])]])
    assert max(two.graph.run()) == 6 + (0.5 + 1.5) + 1.5


# -- inside a block ----------------------------------------------------------------------------------------------------


def test_chunks_by_hand():
    assert streams.chunk_overlap(4.0, 2.0, 4) == 4.5  # the last quarter of the collective is exposed
    assert streams.chunk_overlap(2.0, 4.0, 4) == 4.5
    assert streams.ring_chunk_overlap(4.0, 3.0, 4) == 4.0
    assert streams.ring_chunk_overlap(4.0, 6.0, 4) == 7.0


def test_ring_attention_by_hand():
    assert streams.ring_attention_forward(2, 1.0, 2.0) == 3.0
    assert streams.ring_attention_forward(4, 2.0, 1.0) == 8.0
    # cp 2: keys 2 s arrive after the first block, dK,dV leave after each block: 2 + 3 + 1 (own) + ...
    assert streams.ring_attention_backward(2, 3.0, 2.0, 1.0) == 3 + 3 + 1


def test_fragments_by_hand():
    assert streams.fragments(10.0, 4.0, 2) == 12.0
    assert streams.fragments(4.0, 10.0, 2) == 12.0


def test_collectives_by_hand():
    seconds, sent = streams.ring_all_reduce(4, 8.0, 0.5, 2.0)
    assert seconds == 6 * (0.5 + 1.0) and sent == [12.0] * 4
    assert streams.hierarchical_all_reduce(1.0, 4.0, 1.0, 1) == 6.0
    assert streams.hierarchical_all_reduce(1.0, 4.0, 1.0, 4) == close(4 + 2 / 4)


def test_network_phases_add_up_to_the_ring():
    net = network.Network(100.0, 0.0, 2.0, 0.5, 0.5)
    for ranks in (2, 5, 16):
        group = network.place(ranks, 1)
        assert network.all_reduce(group, net, 8.0, "ring") == close(streams.ring_all_reduce(ranks, 8.0, 0.5, 2.0)[0])
    assert network.place(128, 9) == (8, 1, 16)
