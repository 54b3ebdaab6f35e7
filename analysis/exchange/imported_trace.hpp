// An imported run as a run folder: run.toml, and a trace whose one row is the whole run.
#pragma once

#include <string>

#include "analysis/exchange/imported_table.hpp"

namespace lockstep::analysis {

// The run's description as TOML: [run], [batch], [parallel] as far as given, and [imported] with where it comes from.
// `table`: the name of the table's file.
std::string description_of(const ImportedRun& run, const std::string& table);

// Refused (usage error) where `folder` already holds a run, unless `replace` and that run was imported too.
void check_folder(const std::string& folder, bool replace);

// Writes run.toml and trace-001.h5 into `folder`, in place of an imported run that is there; returns the trace's path.
std::string write_imported_run(const ImportedRun& run, const std::string& table, const std::string& folder);

}  // namespace lockstep::analysis
