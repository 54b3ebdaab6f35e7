// A hidden folder in the run's folder, through which those who watch the ranks of a launch speak across nodes. What a
// launch leaves there when it is killed is removed by the next one.
#pragma once

#include <string>

namespace lockstep::watch {

// `key`: NodeFolder's, of the launch.
std::string watch_folder(const std::string& run_path, const std::string& key);
// Of a new launch; those of earlier ones are removed. Where its folder is gone, a launch owns the run no longer.
void make_watch_folder(const std::string& run_path, const std::string& key);
void remove_watch_folders(const std::string& run_path);

// Of several that try, on any node, one makes the file.
bool claim(const std::string& path);

// Who may say how a launch ended that ends by a fault: true for the first that asks, while the launch owns the run.
bool take_last_word(const std::string& run_path, const std::string& key);

}  // namespace lockstep::watch
