// Lists of hosts as batch systems write them: n1 n2 n3 n7 is "n[1-3,7]".
#pragma once

#include <string>
#include <vector>

namespace lockstep::doctor {

// In natural order (n2 before n10), each once. Numbers with leading zeros keep them: "n[08-11]".
std::string host_list(const std::vector<std::string>& hosts);

}  // namespace lockstep::doctor
