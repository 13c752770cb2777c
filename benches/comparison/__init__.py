"""pitstop and its peers, measured the same way.

One process measures one library on one workload once. `compare.py` starts these processes one after the
other, library after library and round after round, so that a drift of the machine meets all of them. What a
process has measured is one line of JSON, with these figures (seconds unless they say otherwise):

- `setup`: making the checkpointer, its threads, pools and helper processes. Imports come before it.
- `first_stall`, `first_durable`: as below, of the first save of the process. Most allocations happen here.
- `stalls`: how long the call that saves blocks the training thread, for each later save. No loop runs, and
  every tensor has changed since the save before.
- `durables`: from that call until the checkpoint survives a power cut. A library that does not see to that by
  itself is helped: after its own end the harness syncs every file and directory of the checkpoint, and the
  time counts. (Some of the peers call fsync; none had a complete checkpoint after a power cut.)
- `cpus`: CPU seconds, user and system, of the process and all its descendants over the same time;
  `machine_cpus` those of the whole machine, which sees the kernel's own threads.
- `extra`, for each loop: what the checkpoint costs a training loop, stall and interference together. It is
  the time from just before the call until one second after the save has ended, less what as many iterations
  take without a save: the mean of the median iteration times just before and just after. Two saves a loop.
  A loop is
    - `coarse`: one matrix product an iteration, some 20 ms that need no interpreter;
    - `fine`: a hundred small products an iteration, so that it feels every holder of the GIL;
    - `mutating`: the coarse one, which also rewrites 1/64 of the state in place in each iteration. Before its
      first rewrite it waits until the library allows that.
  The library `control` saves nothing and ends after 1.5 seconds: its figures are the error of this one.
- `memory` (bytes): peak of the process's resident memory from before `setup` until the second save has ended,
  less what it was before. `machine_memory` the same for all anonymous and shared memory of the machine,
  sampled every 10 ms, which sees helper processes.
- `growth` (bytes): resident memory after the 50th save less that after the second.
- `restores`: for `into` (filling tensors that exist), `fresh` (new memory) and `mmap`, each `warm` (the files
  lie in the page cache) and `cold` (dropped from it; `resident` is the share that stayed): until the call
  returns, and until one byte of each page has been read too, where lazily read results pay.
- `wrong`: leaves of the warm results that differ from what was saved. There should be none.
- `partial`, of W5 alone: what saves cost when 2 of 100 tensors have changed, from the third save on, with the
  bytes that are new in the checkpoint and those that the process handed to the kernel.
"""
