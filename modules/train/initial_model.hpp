// The checkpoint that a new run begins with (init.from): its model fills in [model], its parameters the run's. A folder
// in the Hugging Face layout is taken as a checkpoint is.
#pragma once

#include <string>
#include <vector>

#include "base/error.hpp"
#include "checkpoint/checkpoint.hpp"
#include "cluster/host_group.hpp"
#include "config/run_description.hpp"
#include "exchange/stored_model.hpp"

namespace lockstep::train {

struct Launch;
struct TrainingState;

// The checkpoint that a name stands for: itself, or the newest of a run's folder or of a folder of checkpoints. Usage
// error for a folder without any. A folder in the Hugging Face layout stands for itself.
std::string newest_checkpoint(const std::string& name);

// The folder of the checkpoints of a run's folder, as it is called from here; a folder without a run.toml itself.
std::string checkpoint_folder_of(const std::string& folder);

// Collective. newest_checkpoint() of rank 0; "" of "".
std::string newest_checkpoint(const std::string& name, cluster::HostGroup& group);

// Collective. config::read_run_description, with the model of init.from; of a run that has checkpoints, with the model
// that its run folder's run.toml has, so that init.from need not be there any more.
config::RunDescription read_run(const std::string& path, const std::vector<std::string>& settings,
                                cluster::HostGroup& group);

// Collective. Usage error where the run would begin with init.from, and that is no checkpoint, or of another model. For
// before the run's folders are made.
void check_initial_model(const Launch& launch);

// Adapters need a base model, and init.from names none.
Error no_model_for_adapters();

// Collective. The checkpoint or folder of init.base; "": none is given.
std::string base_given(const Launch& launch);

// Collective. What checkpoints of adapters alone say of their model; the checksum is computed if it is not yet known.
void name_base(const exchange::StoredModel& base, cluster::HostGroup& group, checkpoint::State& state);

// Collective. Fills the parameters from init.from. Usage error for a checkpoint of another model.
void load_initial_values(const Launch& launch, TrainingState& state);

}  // namespace lockstep::train
