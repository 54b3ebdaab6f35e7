// A hidden folder in the run folder, through which the watchdogs of a launch communicate across nodes. What a killed
// launch leaves there is removed by the next one.
#pragma once

#include <string>

namespace lockstep::watch {

// `key`: the launch's, from NodeFolder.
std::string watch_folder(const std::string& run_path, const std::string& key);
// For a new launch. A launch whose folder is gone no longer owns the run.
void make_watch_folder(const std::string& run_path, const std::string& key);
void remove_watch_folders(const std::string& run_path);

// If several try, on any node, exactly one creates the file.
bool claim(const std::string& path);

// Who may record the end of a launch that fails: true for the first caller, while the launch owns the run.
bool claim_final_status(const std::string& run_path, const std::string& key);

}  // namespace lockstep::watch
