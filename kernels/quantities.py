"""The dictionary: every quantity the project knows, one row each.

A quantity has one name, and that name is the key in a config, the dimension or variable in a dataset, the keyword of
``sweep.evaluate`` and the column of a table.  Names carry their unit (``link_gbps``); ``scale`` turns a value as people
write it into SI (``si = value * scale``), which is what the kernels compute in.

Categories (``choices``) are written as words and travel as small codes: the index of the word in ``choices``.

Standard library only: reading the dictionary imports nothing heavy.
"""

from typing import NamedTuple

MIB = 2.0**20
GBPS = 1e9 / 8  # Gb/s (10^9 bits per second, one direction) to bytes/s
INF = float("inf")


class Quantity(NamedTuple):
    """One row of the dictionary.

    ``default`` of an input is a number, a word of ``choices``, or None: then ``note`` says what stands in its place.
    ``low``/``high`` are the bounds of valid values, both included unless ``open_low`` (then ``value > low``).
    ``better`` is ``low``, ``high`` or ``none``; ``kind`` is ``float``, ``int``, ``flag`` (0 or 1) or ``category``.
    """

    name: str
    unit: str
    long_name: str
    symbol: str = ""
    default: object = None
    low: float = 0.0
    high: float = INF
    open_low: bool = False
    scale: float = 1.0
    kind: str = "float"
    choices: tuple = ()
    better: str = "none"
    note: str = ""


def _number(name, unit, long_name, symbol="", default=None, low=0.0, high=INF, scale=1.0, note=""):
    return Quantity(name, unit, long_name, symbol, default, low, high, False, scale, "float", (), "none", note)


def _positive(name, unit, long_name, symbol="", default=None, high=INF, scale=1.0, note=""):
    return Quantity(name, unit, long_name, symbol, default, 0.0, high, True, scale, "float", (), "none", note)


def _count(name, long_name, symbol="", default=None, low=1, note=""):
    return Quantity(name, "1", long_name, symbol, default, low, INF, False, 1.0, "int", (), "none", note)


def _flag(name, long_name, default):
    return Quantity(name, "1", long_name, "", default, 0, 1, False, 1.0, "flag", (), "none", "")


def _choice(name, long_name, choices, default, note=""):
    return Quantity(name, "1", long_name, "", default, 0, len(choices) - 1, False, 1.0, "category", choices, "none", note)


_INPUTS = (
    # -- model ---------------------------------------------------------------------------------------------------------
    _positive("params", "1", "parameters of a real-valued dense shape", "P", None, note="instead of a model: P = 12 L h^2 with h = 128 L, no embeddings, no divisibility flags"),
    _count("layers", "transformer blocks", "L", None, note="from the model"),
    _count("hidden", "hidden size", "h", None, note="from the model"),
    _count("ffn", "width of the dense MLP", "f", None, note="from the model"),
    _count("heads", "attention heads", "a", None, note="from the model"),
    _count("kv_heads", "key and value heads", "k", None, note="from the model, else heads"),
    _count("head_dim", "width of a head", "d", None, note="from the model, else hidden / heads"),
    _count("vocab", "vocabulary", "V_o", None, 0, note="from the model; 0 leaves out embedding and head"),
    _flag("gated_mlp", "MLP with a gate (three matrices instead of two)", 0),
    _flag("tied_embeddings", "embedding and head share one matrix", 0),
    _count("experts", "routed experts per MoE block (0: dense model)", "E", 0, 0),
    _count("top_k", "experts each token is sent to", "top_k", 0, 0),
    _count("shared_experts", "experts every token passes", "E_s", 0, 0),
    _count("expert_ffn", "width of one expert", "f_e", 0, 0),
    _count("dense_layers", "dense blocks before the MoE blocks", "L_d", 0, 0),
    _count("kv_lora_rank", "MLA: rank of the compressed keys and values (0: no MLA)", "r_kv", 0, 0),
    _count("q_lora_rank", "MLA: rank of the compressed queries (0: not compressed)", "r_q", 0, 0),
    _count("qk_rope_head_dim", "MLA: rotary part of a query and key head", "d_r", 0, 0),
    _count("v_head_dim", "MLA: width of a value head", "d_v", 0, 0, note="0: head_dim"),
    # -- run -----------------------------------------------------------------------------------------------------------
    _count("seq_len", "sequence length", "s", 8192),
    _positive("micro_batch", "sequences", "micro-batch per data-parallel rank", "b", 1.0),
    _positive("global_batch", "sequences", "global batch", "B_g", None, note="dp * micro_batch (one micro-batch per step)"),
    _count("micro_batches", "micro-batches per step", "m", None, note="global_batch / (dp micro_batch); give one of the two"),
    _count("gpus", "accelerators", "N", None, note="1024, unless dp is given"),
    _count("dp", "data-parallel replicas", "dp", None, note="gpus / (tp cp pp); give one of the two"),
    _count("tp", "tensor-parallel size", "tp", 1),
    _count("cp", "context-parallel size", "cp", 1),
    _count("pp", "pipeline stages", "pp", 1),
    _count("vpp", "model chunks per stage (interleaved 1F1B above 1)", "vpp", 1),
    _count("ep", "expert-parallel size", "ep", 1),
    _count("zero_stage", "ZeRO stage (3: FSDP)", "z", 0, 0),
    _count("shard_group", "ranks a parameter is sharded over (HSDP when below dp cp)", "g_s", None, note="dp cp"),
    _choice("schedule", "pipeline schedule", ("1f1b", "zb-h1", "dualpipe"), "1f1b", "1f1b with vpp > 1 is interleaved 1F1B"),
    _choice("recompute", "activation recomputation", ("none", "selective", "full"), "none"),
    _choice("dtype", "compute precision", ("bf16", "fp8", "fp4", "tf32"), "bf16", "bf16 is the 16-bit peak: fp16 on V100"),
    _choice("attention", "attention FLOP counted", ("causal", "full"), "causal"),
    _positive("grad_bytes", "byte", "bytes of a gradient element on the wire", "s_g", 2.0),
    _positive("param_bytes", "byte", "bytes of a parameter element on the wire and in memory", "s_p", 2.0),
    _positive("bucket_bytes", "byte", "gradient bucket", "v", 25 * MIB),
    _positive("first_bucket_bytes", "byte", "first gradient bucket", "v_1", None, note="bucket_bytes (DDP's own default is 1 MiB)"),
    _choice("bucketing", "stages whose gradients are bucketed", ("all", "first"), "all", "first: Megatron, stage 0 and chunk 0 only"),
    _count("prefetch", "FSDP: blocks gathered ahead in backward", "d_p", 1, 0),
    _flag("reshard_after_forward", "FSDP: parameters dropped after forward", 1),
    _flag("reshard_last_block", "FSDP: the last block is dropped after forward too", 0),
    _choice("param_gather", "ZeRO-1/2: when updated parameters are gathered", ("next_forward", "at_once", "exposed"), "next_forward"),
    _flag("sequence_parallel", "sequence parallelism beside tensor parallelism", 1),
    _count("tp_overlap_chunks", "chunks a tensor-parallel collective overlaps its GEMM in (1: exposed)", "k_tp", 1),
    _choice("cp_method", "context parallelism", ("ring", "all_gather"), "ring"),
    _count("ep_overlap_chunks", "chunks an expert all-to-all overlaps compute in (1: exposed)", "k_ep", 1),
    _positive("dispatch_bytes", "byte", "bytes of an element dispatched to an expert", "s_d", 2.0),
    _positive("combine_bytes", "byte", "bytes of an element combined from an expert", "s_c", 2.0),
    _count("node_limit", "scale-up domains a token's experts may sit in (0: any)", "n_lim", 0, 0),
    _count("sync_every", "steps between reductions (DiLoCo; 1: every step)", "H", 1),
    _count("sync_fragments", "fragments a DiLoCo synchronisation is streamed in", "L_f", 1),
    # -- machine -------------------------------------------------------------------------------------------------------
    _positive("peak_tflops", "TFLOP/s", "dense peak of the accelerator at dtype", "F", None, scale=1e12, note="from the accelerator"),
    _positive("hbm_gb", "GB", "accelerator memory", "M_hbm", None, scale=1e9, note="from the accelerator"),
    _positive("hbm_gbytes_per_s", "GB/s", "accelerator memory bandwidth", "B_hbm", None, scale=1e9, note="from the accelerator"),
    _count("scaleup_domain", "accelerators in a scale-up domain", "S", None, note="from the accelerator"),
    _positive("scaleup_gbytes_per_s", "GB/s", "scale-up rate per accelerator and direction", "B_in", None, scale=1e9, note="from the accelerator"),
    _number("scaleup_latency_us", "us", "scale-up latency per hop", "alpha_in", 1.0, scale=1e-6),
    _positive("scaleup_efficiency", "1", "fraction of the scale-up rate delivered", "e_in", 1.0, high=1.0),
    _positive("link_gbps", "Gb/s", "scale-out port per accelerator and direction", "B", None, scale=GBPS, note="the port that the accelerator ships with"),
    _number("link_latency_us", "us", "scale-out latency per hop", "alpha", 5.0, scale=1e-6),
    _positive("link_efficiency", "1", "fraction of the port rate delivered", "e_out", 1.0, high=1.0),
    _positive("link_half_bytes", "byte", "message size at half the port's rate (0: none)", "x_half", 0.0)._replace(open_low=False, note="a second latency term: leave 0 where link_latency_us is fitted"),
    _choice("rails", "ports a ring over several domains uses", ("all", "one"), "all"),
    _choice("algorithm", "all-reduce algorithm", ("auto", "ring", "tree", "hierarchical", "in-network"), "auto", "auto: the fastest that NCCL could pick (without in-network)"),
    _count("pipeline_chunks", "chunks the phases of a hierarchical collective are pipelined in", "q", 1),
    _positive("tree_factor", "1", "bytes of the double binary tree over those of the ring", "t_f", 1.0),
    _positive("ll_bandwidth_ratio", "1", "cost per byte of the low-latency protocol over Simple", "r_1", 1.0, note="about 16 for NCCL"),
    _positive("simple_latency_ratio", "1", "latency of the Simple protocol over the low-latency one", "r_2", 1.0, note="about 2.7 for NCCL"),
    _count("channels", "NCCL channels (0: enough for the full rate)", "n_ch", 0, 0),
    _positive("channel_gbytes_per_s", "GB/s", "rate that one channel can drive", "B_ch", 20.0, scale=1e9),
    _positive("oversubscription", "1", "downlinks over uplinks of the tier above the pod", "o", 1.0)._replace(low=1.0, open_low=False),
    _count("pod_gpus", "accelerators below the oversubscribed tier (0: a scale-up domain)", "N_pod", 0, 0),
    _number("pod_latency_us", "us", "latency per hop across the oversubscribed tier", "alpha_pod", None, scale=1e-6, note="link_latency_us"),
    _number("overlap_slowdown", "1", "slow-down of compute while communication runs", "kappa", 0.0),
    _number("comm_slowdown", "1", "slow-down of communication while compute runs", "kappa_c", 0.0),
    _positive("efficiency", "1", "fraction of peak achieved while computing", "eta", None, high=1.0, note="the calibrated law of the accelerator and stack, else 0.4"),
    _positive("gemm_efficiency", "1", "fraction of peak of a large GEMM", "e_0", None, high=1.0, note="from the accelerator"),
    _number("gemm_half_flop", "FLOP", "FLOP of a GEMM at half of gemm_efficiency", "F_half", None, note="from the accelerator"),
    _positive("hbm_efficiency", "1", "fraction of the memory bandwidth achieved", "e_m", 0.85, high=1.0),
    _positive("attention_efficiency", "1", "fraction of peak of the attention core", "e_a", 0.4, high=1.0, note="from the stack"),
    _positive("memory_bytes_factor", "1", "multiplier of the minimal memory-bound bytes", "m_f", 2.5, note="from the stack"),
    _number("logit_bytes", "byte", "bytes that the loss moves per logit, forward and backward together", "b_V", 20.0, note="from the stack; a fused loss least, eager code about 60"),
    _number("host_time_ms", "ms", "host time of a block and micro-batch", "t_host", 0.0, scale=1e-3, note="from the stack"),
    _number("host_micro_batch_ms", "ms", "host time of a stage and micro-batch beside its blocks", "t_stage", 0.0, scale=1e-3, note="from the stack"),
    _number("tolerance", "1", "fraction of the step that may stay exposed", "tol", 0.02, high=0.99),
    # -- money and power -----------------------------------------------------------------------------------------------
    # SHEET: public cost sheet of H100 clusters, August 2024, docs.google.com/spreadsheets/d/1Ft3RbeZ-w43kYSiLfYc1vxO41mK5lmJpcPC9GOYHAWc
    _number("accelerator_usd", "USD", "price of an accelerator with its share of the server, without NIC", "", 37000.0, note="H100: 310,000 USD a node with NICs in August 2024 (SHEET), less 8 NICs; SemiAnalysis had 270,000 in 2023 (github.com/epoch-research/training-cost-trends)"),
    _number("accelerator_watts", "W", "power of an accelerator with its share of the server", "", 1275.0, note="DGX H100: 10.2 kW at most for eight"),
    _positive("switch_gbps", "Gb/s", "capacity of a switch", "", 51200.0, scale=GBPS, note="64 ports of 800 Gb/s (SN5600); a QM9700 has 25,600"),
    _positive("switch_port_gbps", "Gb/s", "fastest port of a switch; faster links are split over planes", "", 800.0, scale=GBPS),
    _count("switch_radix", "ports of a switch at the port speed", "k_sw", None, 2, note="switch_gbps over the port speed, at most 256"),
    _count("planes", "copies of the network that a link is split over", "n_pl", None, note="the cheapest of as few as switch_port_gbps allows, twice and four times as many"),
    _choice("fabric_design", "topology of the scale-out network", ("fat-tree", "rail-optimised", "rail-only"), "rail-optimised"),
    _count("fabric_rails", "rails: accelerators of a node with a leaf of their own", "r", 8),
    _number("switch_usd_per_gbps", "USD s/Gb", "price of a switch per Gb/s of capacity", "", 1.4, scale=1 / GBPS, note="36,000 USD for 64 x 400 Gb/s (SHEET; about 50,000 from NVIDIA)"),
    _number("optics_usd_per_gbps", "USD s/Gb", "price of the two transceivers of a link per Gb/s", "", 3.0, scale=1 / GBPS, note="1,280 USD a 400 Gb/s link with its fibre (SHEET)"),
    _number("cable_usd", "USD", "price of a link's fibre and handling, whatever its speed", "", 80.0, note="1,280 USD a 400 Gb/s link with its fibre (SHEET), split by assumption"),
    _number("nic_usd_per_gbps", "USD s/Gb", "price of a NIC per Gb/s", "", 4.0, scale=1 / GBPS, note="assumption: 1,600 USD at 400 Gb/s; no list price is public"),
    _number("switch_watts_per_gbps", "W s/Gb", "switch power per Gb/s of capacity", "", 0.018, scale=1 / GBPS, note="51.2 Tb/s without transceivers: 913 W typical (UfiSpace S9321-64E, ipinfusion.com/technology/tomahawk-5)"),
    _number("optics_watts_per_gbps", "W s/Gb", "power of the two transceivers of a link per Gb/s", "", 0.0425, scale=1 / GBPS, note="17 W a plug of two 400 Gb/s ports at the switch, 9 W of one at the NIC (docs.nvidia.com/networking/display: QM97X0PUB/Interfaces, mms4x00ns400/overview)"),
    _number("nic_watts_per_gbps", "W s/Gb", "NIC power per Gb/s", "", 0.06, scale=1 / GBPS, note="assumption: about 25 W at 400 Gb/s"),
    _number("usd_per_kwh", "USD", "price of energy", "", 0.08, note="8.06 cents, mean of US industry in 2023 (EIA, by statista.com/statistics/190680)"),
    _positive("pue", "1", "power usage effectiveness", "", 1.25, note="assumption, between the 1.58 of Uptime Institute's survey (journal.uptimeinstitute.com, 2023) and the 1.1 of the largest sites"),
    _positive("amortisation_years", "a", "life over which capital is written off", "", 4.0, note="assumption: what Microsoft, Alphabet and Amazon used until 2022; they use 5 to 6 now (shaulkoral.com/useful-life-of-servers-and-network-assets-at-tech-companies)"),
    # -- serving (kernels/serving.py; seq_len is the length of prompt and context) ------------------------------------
    _positive("decode_batch", "sequences", "sequences decoded together", "b_d", 32.0, note="of a tensor-parallel group and micro-batch"),
    _count("serving_micro_batches", "micro-batches that alternate in serving", "m_d", 1, note="2: experts of one exchange while the other computes"),
    _positive("kv_bytes", "byte", "bytes of a key or value element in the cache", "s_kv", 2.0),
    # -- capacity (kernels/capacity.py) --------------------------------------------------------------------------------
    _positive("utilisation", "1", "share of accelerators busy", "rho", 0.8, high=1.0),
    _positive("job_gpus", "1", "accelerators a job asks for, mean (its gang)", "g", 8.0),
    _number("job_gpus_cv", "1", "coefficient of variation of gangs (0: all equal)", "c_g", 0.0),
    _positive("job_hours", "h", "duration of a job, mean", "S", 24.0),
    _number("duration_cv", "1", "coefficient of variation of durations", "c_s", 1.0),
    _number("arrival_cv", "1", "coefficient of variation of the gaps between arrivals", "c_a", 1.0),
    # -- stragglers and failures (kernels/stragglers.py) ---------------------------------------------------------------
    _number("rank_cv", "1", "variation of a rank's step from one step to the next", "c_r", 0.0),
    _choice("rank_tail", "distribution of a rank's step", ("normal", "lognormal", "exponential"), "normal"),
    _positive("network_mtbf_years", "a", "mean time between network failures that stop a job, per accelerator", "", 69.0, note="Llama 3: 35 in 54 days on 16,384 accelerators (arXiv 2407.21783, table 5)"),
    _positive("mtbf_years", "a", "mean time between failures of any kind, per accelerator", "", 5.8, note="Llama 3: 419 in 54 days on 16,384 accelerators (same table)"),
    _number("lost_rails", "1", "ports that one node has lost, of its fabric_rails: everybody waits for it", "r_lost", 0.0),
    _number("repair_hours", "h", "time until a failed link or port is replaced", "", 4.0, note="assumption"),
    _number("restart_hours", "h", "time lost per failure: work since the last checkpoint, and the restart", "", 0.5, note="assumption"),
)

REASONS = ("ok", "gpus", "heads", "layers", "batch", "experts", "schedule", "shard_group", "contention", "memory")
"""Words of ``status`` in the order of their codes; the first that applies is stored.  All but ``memory`` are impossible."""
EXCLUDED = 254  # status of a point that ``where`` leaves out
MISSING = 255  # fill value of every category: not computed
GROUPS = ("none", "dp", "pp", "ep", "cp", "tp")
BOTTLENECKS = ("compute", "memory", "bubble", "dp", "tp", "cp", "ep", "pp", "optimizer", "latency")
ALGORITHMS = ("none", "ring", "tree", "hierarchical", "in-network")


def _time(name, long_name, symbol=""):
    return Quantity(name, "s", long_name, symbol, better="low")


def _gbps(name, long_name, symbol=""):
    return Quantity(name, "Gb/s", long_name, symbol, scale=GBPS, better="low")


def _code(name, long_name, choices):
    return Quantity(name, "1", long_name, "", None, 0, len(choices) - 1, False, 1.0, "category", choices)


_OUTPUTS = (
    _time("step_time_s", "time of a training step", "T"),
    _time("compute_time_s", "compute of a step on the slowest stage", "T_c"),
    _time("forward_time_s", "forward of a stage and micro-batch", "t_f"),
    _time("backward_time_s", "backward of a stage and micro-batch", "t_b"),
    _time("bubble_time_s", "pipeline bubble"),
    _time("optimizer_time_s", "optimizer update on the slowest stage"),
    _time("exposed_dp_s", "exposed data-parallel communication", "E_dp"),
    _time("exposed_tp_s", "exposed tensor-parallel communication", "E_tp"),
    _time("exposed_cp_s", "exposed context-parallel communication", "E_cp"),
    _time("exposed_ep_s", "exposed expert-parallel communication", "E_ep"),
    _time("exposed_pp_s", "exposed pipeline communication", "E_pp"),
    Quantity("exposed_fraction", "1", "exposed communication over the step", better="low"),
    _time("dp_comm_time_s", "data-parallel communication of a step", "C"),
    Quantity("hidden_fraction", "1", "hidden share of data-parallel communication", better="high"),
    _gbps("first_order_link_gbps", "required port, first-order law", "B_1"),
    _gbps("required_link_gbps", "required port, sustained", "B_req"),
    _gbps("link_gbps_at_tolerance", "port at which the exposed share meets the tolerance", "B_tol"),
    _gbps("required_link_gbps_dp", "required port of data parallelism"),
    _gbps("required_link_gbps_tp", "required port of tensor parallelism"),
    _gbps("required_link_gbps_pp", "required port of pipeline parallelism"),
    _gbps("required_link_gbps_ep", "required port of expert parallelism"),
    _gbps("required_link_gbps_cp", "required port of context parallelism"),
    _code("binding_dimension", "group that asks for the fastest port", GROUPS),
    Quantity("binding_margin", "1", "largest requirement over the next"),
    _code("bottleneck", "term whose removal shortens the step most", BOTTLENECKS),
    _code("dp_algorithm", "algorithm of the gradient reduction", ALGORITHMS),
    Quantity("mfu", "1", "model FLOP utilisation", better="high"),
    Quantity("hfu", "1", "hardware FLOP utilisation (with recomputation)", better="high"),
    Quantity("tokens_per_s_per_gpu", "1/s", "tokens per second and accelerator", better="high"),
    Quantity("tokens_per_domain", "1", "tokens of a scale-up domain in the hiding window", "tau", better="none"),
    Quantity("achieved_tflops", "TFLOP/s", "FLOP rate achieved while computing", "eta F", scale=1e12, better="high"),
    Quantity("dp", "1", "data-parallel replicas", "dp"),
    Quantity("micro_batches", "1", "micro-batches per step", "m"),
    Quantity("memory_bytes", "byte", "memory per accelerator on the fullest stage", better="low"),
    _code("status", "whether the point can run, else the first reason why not", REASONS),
    Quantity("fabric_usd_per_gpu", "USD", "scale-out network per accelerator", better="low"),
    Quantity("usd_per_million_tokens", "USD", "cost of a million trained tokens", better="low"),
    Quantity("watts_per_gpu", "W", "power at the meter per accelerator with its share of the network", better="low"),
)
_FURTHER = (  # not of a training step: worked out only when asked for by name
    Quantity("joules_per_token", "J", "energy at the meter per trained token", better="low"),
    _time("decode_time_s", "time per output token"),
    _time("decode_compute_s", "memory and compute of an output token"),
    _time("decode_tp_s", "tensor-parallel all-reduces of an output token"),
    _time("decode_ep_s", "expert exchange of an output token"),
    Quantity("decode_tokens_per_s_per_gpu", "1/s", "output tokens per second and accelerator", better="high"),
    _time("prefill_time_s", "prefill of a prompt"),
    _time("kv_transfer_s", "move of a prompt's keys and values to another machine"),
    _time("first_token_time_s", "time to the first token (prefill elsewhere)"),
    Quantity("kv_bytes_per_token", "byte", "keys and values of a token, all layers"),
    _gbps("decode_tp_link_gbps", "port for tensor parallelism in decoding"),
    _gbps("decode_ep_link_gbps", "port for experts in decoding"),
    _gbps("decode_pp_link_gbps", "port for the hops of a pipeline in decoding"),
    _gbps("prefill_tp_link_gbps", "port for tensor parallelism in prefill"),
    _gbps("prefill_ep_link_gbps", "port for experts in prefill"),
    _gbps("kv_link_gbps", "port for keys and values"),
    Quantity("serving_memory_bytes", "byte", "weights, keys and values per accelerator", better="low"),
    Quantity("wait_hours", "h", "wait of a job, mean", better="low"),
    Quantity("wait_p99_hours", "h", "wait of 99 % of jobs", better="low"),
    Quantity("usable_utilisation", "1", "utilisation at which the queue grows without bound", better="high"),
    Quantity("usd_per_busy_gpu_hour", "USD", "cost of an accelerator's busy hour, idle ones paid for", better="low"),
    Quantity("straggler_factor", "1", "expected step of the slowest rank over the mean", better="low"),
    Quantity("port_down_fraction", "1", "share of time with a port down somewhere, where jobs ride network failures out", better="low"),
    Quantity("goodput", "1", "share of time that is neither straggling nor lost to failures", better="high"),
)

INPUTS = {q.name: q for q in _INPUTS}
SMOOTH = (
    "micro_batch", "seq_len", "peak_tflops", "efficiency", "gemm_efficiency", "attention_efficiency", "hbm_gbytes_per_s",
    "memory_bytes_factor", "grad_bytes", "param_bytes", "bucket_bytes", "link_latency_us", "link_efficiency", "scaleup_gbytes_per_s",
    "scaleup_latency_us", "oversubscription", "overlap_slowdown", "comm_slowdown",
)  # fmt: skip
"""Inputs of which the required port has an elasticity (kernels/elasticities.py)."""
_SLOPES = tuple(Quantity(f"elasticity_{name}", "1", f"elasticity of the required port to: {INPUTS[name].long_name}") for name in SMOOTH)
ELASTICITIES = tuple(q.name for q in _SLOPES)
OUTPUTS = {q.name: q for q in _OUTPUTS + _FURTHER + _SLOPES}
STEP_OUTPUTS = tuple(q.name for q in _OUTPUTS)
"""The outputs of a training step: what ``outputs: all`` means."""
EVERY_OUTPUT = tuple(q.name for q in _OUTPUTS + _FURTHER)
"""What ``sweep.evaluate`` works out where no output is named: all but elasticities."""


def encode(quantity, word):
    """The code of a category's word; KeyError where it has no such word."""
    try:
        return quantity.choices.index(word)
    except ValueError:
        raise KeyError(word) from None
