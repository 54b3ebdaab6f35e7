// An examination as text: the table of links, then remarks, findings, and one line that sums up.
#pragma once

#include <string>

#include "base/table.hpp"
#include "doctor/examine.hpp"

namespace lockstep::doctor {

Table link_table(const Examination& of);
std::string report(const Examination& of, TableFormat format);
// "3 findings" or "no problems found (1.2 s)"
std::string verdict(const Examination& of);
// For the log: one line for each, without the advice's source.
std::string log_line(const Finding& finding);

}  // namespace lockstep::doctor
