// What a node tells the others of its ranks when a run stands still, and the report that is made of it. The first byte
// chooses the number of ranks.
#include "watch/watch_report.hpp"
#include "fuzz/harness.hpp"
#include "watch/blame.hpp"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    const int ranks = 1 + data[0] % 8;
    const std::string text(fuzz::text_of(data + 1, size - 1));
    fuzz::judge(size, [&] {
        const std::vector<watch::RankReport> reports = watch::node_report_from(text);
        const std::string sentence = watch::progress_sentence(reports, ranks);
        watch::laggards_sentence(watch::find_laggards(reports, ranks), reports, ranks);
        watch::watch_report_text("title", sentence, reports, ranks);
        watch::blamed_nodes(reports, std::vector<std::string>(static_cast<std::size_t>(ranks), "host"));
        watch::quiet_of_working(reports);
        watch::node_report_text(reports);
    });
    return 0;
}
