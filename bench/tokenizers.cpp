// How fast text becomes tokens: on one thread and on all, the best of some rounds; the text is in the page cache.
// usage: bench_tokenizers TOKENIZER PATH… [--rounds N]
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <set>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/table.hpp"
#include "cluster/placement.hpp"
#include "data/encode.hpp"
#include "data/text_files.hpp"
#include "data/tokenizer.hpp"
#include "device/parallel.hpp"

namespace {

using namespace lockstep;

void measure(const std::string& name, const std::vector<std::string>& paths, int rounds) {
    const auto tokenizer = data::open_tokenizer(name);
    const data::TextFiles text = data::collect_text_files(paths);
    data::EncodeOptions options;
    options.progress = false;
    Table table({{"threads", "threads"},
                 {"bytes", "bytes"},
                 {"bytes_per_token", "bytes per token", 3},
                 {"seconds", "seconds", 3},
                 {"megabytes_per_second_and_thread", "MB/s per thread", 1}});
    for (const int count : std::set<int>{1, threads()}) {
        set_threads(count);
        double best = 0;
        std::uint64_t bytes = 0;
        for (int round = 0; round < rounds; ++round) {
            bytes = 0;
            const double begun = seconds_now();
            data::encode_text(text, *tokenizer, options, [&](const void*, std::size_t more) { bytes += more; });
            const double seconds = seconds_now() - begun;
            best = round == 0 ? seconds : std::min(best, seconds);
        }
        const auto all = static_cast<double>(text.bytes());
        const double tokens = static_cast<double>(bytes) / static_cast<double>(tokenizer->token_width());
        table.add_row({std::int64_t{count}, static_cast<std::int64_t>(text.bytes()), all / tokens, best,
                       all / best / count / 1e6});
    }
    std::fputs(table.print(TableFormat::text).c_str(), stdout);
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App program("Times tokenization of text");
    std::string tokenizer;
    std::vector<std::string> paths;
    int rounds = 3;
    program.add_option("tokenizer", tokenizer, "As for lockstep pack --tokenizer")->required();
    program.add_option("paths", paths, "Text files and folders")->required();
    program.add_option("--rounds", rounds)->capture_default_str()->check(CLI::PositiveNumber);
    CLI11_PARSE(program, argc, argv);
    try {
        set_threads(cluster::place_alone({}).seat().threads);
        measure(tokenizer, paths, rounds);
    } catch (const Error& problem) {
        std::fprintf(stderr, "%s\n", problem.what());
        return static_cast<int>(problem.code());
    }
    return 0;
}
