// A set of processing units (hardware threads) by operating-system index.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::cluster {

class CpuSet {
  public:
    CpuSet() = default;
    explicit CpuSet(std::vector<int> units);  // any order, duplicates allowed
    // "0-3,8", with strides as in taskset: "0-12:4". Anything else is a usage error.
    static CpuSet parse(std::string_view text);

    const std::vector<int>& units() const { return units_; }  // ascending
    bool empty() const { return units_.empty(); }
    int size() const { return static_cast<int>(units_.size()); }
    bool contains(int unit) const;
    bool overlaps(const CpuSet& other) const;
    std::string text() const;  // the shortest form that parse() accepts: "0-3,8"

    friend bool operator==(const CpuSet&, const CpuSet&) = default;
    friend CpuSet operator|(const CpuSet& left, const CpuSet& right);
    friend CpuSet operator&(const CpuSet& left, const CpuSet& right);
    friend CpuSet operator-(const CpuSet& left, const CpuSet& right);

  private:
    std::vector<int> units_;
};

}  // namespace lockstep::cluster
