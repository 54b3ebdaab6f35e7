// A hidden folder in the run folder, through which the watchdogs of a launch communicate across nodes. What a killed
// launch leaves there is removed by the next one.
#pragma once

#include <string>

namespace lockstep::watch {

// `key`: the launch's, from NodeFolder.
std::string watch_folder(const std::string& run_path, const std::string& key);
// For a new launch; false if it cannot be made. A launch whose folder is gone no longer owns the run.
bool make_watch_folder(const std::string& run_path, const std::string& key);
void remove_watch_folders(const std::string& run_path);

// If several try, on any node, exactly one creates the file.
bool claim(const std::string& path);

// Who may record the end of a launch that fails: true for the first caller, while the launch owns the run.
bool claim_final_status(const std::string& run_path, const std::string& key);
// Whether someone has done so, or the run belongs to another launch by now.
bool final_status_is_claimed(const std::string& run_path, const std::string& key);
// For a launch that ends by itself: from here on nobody can claim. False if someone has done so, or the run belongs to
// another launch by now.
bool close_watch_folder(const std::string& run_path, const std::string& key);

}  // namespace lockstep::watch
