-- Lockstep as an environment module, for Lmod.
--
-- How to use:
--   1. Install: make install PREFIX=/apps/lockstep/0.2.0, with the modules of the compiler, MPI and HDF5 loaded that it is to
--      run with.
--   2. Write that folder below, and the names of those modules.
--   3. Copy this file to MODULEPATH: …/modulefiles/lockstep/0.2.0.lua. Then: module load lockstep/0.2.0
--   Before step 3 it can be tried with: module use jobs/site/modulefiles
local prefix = "/apps/lockstep/0.2.0"

help([[
Lockstep trains transformer and TTT language models with MPI.
  srun lockstep train run.toml --resume auto     (or mpirun)
  lockstep-analyze summary runs/NAME
The documentation and the job scripts are in $LOCKSTEP_DOCUMENTATION.
]])
whatis("Name: Lockstep")
whatis("Version: 0.2.0")
whatis("Description: trains transformer and TTT language models with MPI on CPUs and GPUs")

conflict("lockstep")
-- What it was built with. Without these lines load them by hand.
-- depends_on("mpich/4.1", "hdf5/1.14-mpich")

prepend_path("PATH", pathJoin(prefix, "bin"))
setenv("LOCKSTEP_DOCUMENTATION", pathJoin(prefix, "share/doc/lockstep"))
