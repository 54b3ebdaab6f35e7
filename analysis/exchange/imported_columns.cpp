#include "analysis/exchange/imported_columns.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "base/error.hpp"
#include "base/format.hpp"

namespace lockstep::analysis {
namespace {

struct OtherNames {
    const char* column;
    std::vector<std::string> names;  // as plain() makes them
};

const std::array<OtherNames, 12>& other_names() {
    static const std::array<OtherNames, 12> all = {
        {{"run", {"name"}},
         {"ranks", {"n_ranks", "nranks",    "num_ranks", "mpi_ranks", "np",      "nproc",  "nprocs",
                    "n_procs", "num_procs", "procs",     "processes", "tasks",   "ntasks", "n_tasks",
                    "gpus",    "ngpus",     "n_gpus",    "num_gpus",  "devices", "cores",  "ncores",
                    "n_cores", "num_cores", "workers",   "world_size"}},
         {"total",
          {"time", "seconds", "total_time", "total_seconds", "wall", "walltime", "wall_time", "wallclock", "wall_clock",
           "runtime", "run_time", "elapsed", "elapsed_time", "duration", "execution_time", "time_to_solution"}},
         {"communication", {"comm", "comm_time", "communication_time", "mpi", "mpi_time"}},
         {"compute", {"comp", "compute_time", "computation", "computation_time"}},
         {"tokens_per_second", {"tokens/s", "tok/s", "tokens_per_sec", "tokens_per_s", "throughput"}},
         {"batch", {"batch_size", "global_batch", "global_batch_size"}},
         {"length", {"seq_len", "seq_length", "sequence_length"}},
         {"data", {"dp", "data_parallel"}},
         {"tensor", {"tp", "tensor_parallel"}},
         {"pipeline", {"pp", "pipeline_parallel"}},
         {"context", {"cp", "context_parallel"}}}};
    return all;
}

// "Wall Time [s]" is "wall_time". A unit other than seconds stays, so that no column of milliseconds is taken for one.
std::string plain(const std::string& written) {
    std::string name;
    for (const char letter : written) {
        const bool gap = letter == ' ' || letter == '-' || letter == '.';
        name += gap ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
    }
    for (const std::string unit : {"_[s]", "_(s)", "[s]", "(s)", "_sec", "_seconds", "_s"})
        if (name.size() > unit.size() && name.ends_with(unit)) return name.substr(0, name.size() - unit.size());
    return name;
}

std::string column_of(const std::string& written, const std::vector<std::string>& known) {
    std::string whole = written;
    for (char& letter : whole) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
    for (const std::string& name : {whole, plain(written)}) {
        if (std::find(known.begin(), known.end(), name) != known.end()) return name;
        for (const OtherNames& other : other_names())
            if (std::find(other.names.begin(), other.names.end(), name) != other.names.end()) return other.column;
    }
    return "";
}

}  // namespace

ImportedColumns::ImportedColumns(const CsvTable& table, const std::vector<std::string>& known,
                                 std::vector<std::string>& warnings)
    : written_(table.header.fields) {
    const auto wrong = [&](const std::string& sentence) {
        return usage_error("{} line {}: {}", table.path, table.header.line, sentence);
    };
    for (const std::string& written : written_) {
        std::string name = column_of(written, known);
        if (name.empty()) {
            const std::string nearest = nearest_name(written, known);
            warnings.push_back(fmt::format("unknown column '{}' is ignored{}", printable(written),
                                           nearest.empty() ? "" : " (did you mean " + nearest + "?)"));
            ignored_.push_back(printable(written));
        } else if (has(name)) {
            // The exact name is the one that is meant; between two others there is no telling.
            const std::string before = this->written(name);
            if (before != name && written != name)
                throw wrong(fmt::format("the columns '{}' and '{}' both mean {}; leave one out", printable(before),
                                        printable(written), name));
            warnings.push_back(fmt::format("column '{}' is ignored: there is a column {}",
                                           printable(before == name ? written : before), name));
            if (before == name)
                name.clear();
            else
                names_[index(name)].clear();
        } else if (name != written) {
            warnings.push_back(fmt::format("column '{}' is read as {}", printable(written), name));
        }
        names_.push_back(std::move(name));
    }
    if (!has("ranks") && (!has("rank") || !has("run")))
        throw wrong(
            "no column says how many ranks a run has; name one ranks (processes or GPUs), for example: ranks,time");
}

std::size_t ImportedColumns::index(const std::string& column) const {
    return static_cast<std::size_t>(std::find(names_.begin(), names_.end(), column) - names_.begin());
}

std::string ImportedColumns::text(const CsvRow& row, const std::string& column) const {
    const std::size_t i = index(column);
    return i < names_.size() ? row.fields[i] : "";
}

std::string ImportedColumns::written(const std::string& column) const {
    const std::size_t i = index(column);
    return i < names_.size() ? written_[i] : column;
}

}  // namespace lockstep::analysis
