"""The event simulator: the model written a second time, slowly, for one point, from streams, tasks and dependencies.

Nothing here imports the kernels and nothing here is a closed form: every bucket, block, micro-batch, stage, gather, hop and chunk is an
event. Plain float64 Python, standard library only.

    engine      tasks on streams, in order, with dependencies; streams that slow each other down
    network     seconds of one collective, phase by phase
    reduction   buckets under a backward pass, gathers, FSDP, HSDP: one GPU
    pipeline    every pass of every stage in the frameworks' order, and the hops between them
    sharded     FSDP and HSDP units under the passes of a pipeline
    streams     chunks, rings and fragments; collectives hop by hop
    step        all of it: the whole training step
"""
