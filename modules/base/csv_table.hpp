// Comma-separated tables as RFC 4180 describes them, in UTF-8: quoted fields, CRLF, a byte order mark. Blank lines and
// lines that begin with # are skipped.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace lockstep {

struct CsvRow {
    std::size_t line = 0;  // of its beginning in the file, from 1
    std::vector<std::string> fields;
};

struct CsvTable {
    std::string path;
    CsvRow header;
    std::vector<CsvRow> rows;  // each with as many fields as the header
};

// What is no such table is a usage error that names the line.
CsvTable read_csv_table(const std::string& path);

// A cell as a sentence shows it: on one line, and shortened where it is long.
std::string printable(const std::string& cell);

}  // namespace lockstep
