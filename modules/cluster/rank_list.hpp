// Lists of ranks as short text: "0-3,8-14:2" is 0 1 2 3 8 10 12 14.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cluster {

std::string rank_list_text(const std::vector<int>& ranks);  // ascending
// For a sentence: "0-3,8-14:2,... (12,345 in all)" where the list is longer than about 80 characters.
std::string short_rank_list_text(const std::vector<int>& ranks);
// Empty if `text` is not of this form, or names more than 131,072 ranks.
std::vector<int> rank_list_from(const std::string& text);

}  // namespace lockstep::cluster
