// Lists of hosts as batch systems write them: n1 n2 n3 n7 is "n[1-3,7]".
#pragma once

#include <string>
#include <vector>

namespace lockstep::doctor {

// In natural order (n2 before n10), each once. Numbers with leading zeros keep them: "n[08-11]".
std::string host_list(const std::vector<std::string>& hosts);

// The hosts of --nodes-file: one in each line; what follows a # or a blank is a remark, as in the lists of batch
// systems. Usage errors: no host, a line that does not begin with one.
std::vector<std::string> read_host_list(const std::string& path);

}  // namespace lockstep::doctor
