// The columns of an imported table under the names that docs/analysis-exchange.md gives them: others usual in the field
// are read as these.
#pragma once

#include <string>
#include <vector>

#include "base/csv_table.hpp"

namespace lockstep::analysis {

class ImportedColumns {
  public:
    // Usage error where two columns mean the same, or nothing says how many ranks a run has. `warnings`: columns that
    // are read by another name, or ignored.
    ImportedColumns(const CsvTable& table, const std::vector<std::string>& known, std::vector<std::string>& warnings);

    bool has(const std::string& column) const { return index(column) < names_.size(); }
    std::string text(const CsvRow& row, const std::string& column) const;  // "" where there is no such column
    std::string written(const std::string& column) const;                  // as the table calls it
    const std::vector<std::string>& ignored() const { return ignored_; }   // unknown ones, as the table calls them

  private:
    std::size_t index(const std::string& column) const;
    std::vector<std::string> names_, written_, ignored_;  // names_ and written_ by the table's columns; "": ignored
};

}  // namespace lockstep::analysis
