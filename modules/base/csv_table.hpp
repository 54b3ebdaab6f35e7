// CSV tables (RFC 4180) in UTF-8: quoted fields, CRLF, byte order mark. Blank lines and lines starting with # are
// skipped.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace lockstep {

struct CsvRow {
    std::size_t line = 0;  // where it begins in the file, from 1
    std::vector<std::string> fields;
};

struct CsvTable {
    std::string path;
    CsvRow header;
    std::vector<CsvRow> rows;  // each with as many fields as the header
};

// Malformed tables are usage errors that name the line.
CsvTable read_csv_table(const std::string& path);

// A cell for messages: on one line, shortened if long.
std::string printable(const std::string& cell);

}  // namespace lockstep
