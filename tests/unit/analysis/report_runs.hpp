// Runs as a small cluster might have made them, for tests of the report: a strong scaling series whose ranks differ,
// scatter and stall, the same in every test.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>

#include "base/random.hpp"
#include "unit/trace/synthetic_trace.hpp"

namespace lockstep::analysis::test {

// Quotes, markup, what gnuplot and shells expand, characters of two, three and four bytes, a control character.
inline const std::string hostile_name =
    "a'b\"c<script>alert(1)</script>&amp;$PATH`id`@x_{y}^z%d\\n\u00e9\u4e16\U0001F680\t--> ]]>";

// One run of `steps` steps on `ranks` ranks in the folder `path`.
inline void write_run(const std::string& path, const std::string& name, std::size_t ranks, std::int64_t steps) {
    const std::vector<std::string> paths = {"initialization",
                                            "epoch",
                                            "epoch/step",
                                            "epoch/step/data_loading",
                                            "epoch/step/forward",
                                            "epoch/step/forward/loss",
                                            "epoch/step/backward",
                                            "epoch/step/communication",
                                            "epoch/step/communication/data",
                                            "epoch/step/optimizer"};
    trace::Header header = trace::test::make_header(ranks, paths);
    header.run_name = name;
    for (std::size_t r = 0; r < ranks; ++r) header.ranks[r].cores = std::to_string(r % 2 * 4);
    header.start_time = 1.78e9 + 3600.0 * static_cast<double>(ranks);
    const RandomStream random(7, "report runs " + std::to_string(ranks));
    trace::TraceWriter writer(path, header, static_cast<std::uint64_t>(steps));
    constexpr std::int64_t block_steps = 500;
    for (std::int64_t first = 1; first <= steps; first += block_steps) {
        trace::RowBatch block;
        for (std::int64_t step = first; step < std::min(first + block_steps, steps + 1); ++step) {
            const auto index = static_cast<std::uint64_t>(step) * 1000;
            const double stall = random.uniform(index) < 0.02 ? 1.6 : 1;
            std::vector<double> compute;
            for (std::size_t r = 0; r < ranks; ++r)
                compute.push_back((0.8 / static_cast<double>(ranks) + 0.01) *
                                  (1 + 0.02 * random.normal(index + r + 1) + (r + 1 == ranks ? 0.08 : 0)) * stall);
            const double longest = *std::max_element(compute.begin(), compute.end());
            const double transfer = ranks > 1 ? 0.006 * std::log2(static_cast<double>(ranks)) : 0;
            trace::StepRow row;
            row.step = step;
            row.epoch = step / 1000;
            row.loss = 2.2 + 3.3 * std::exp(-static_cast<double>(step) / 300) + 0.05 * random.normal(index + 999);
            if (step % 50 == 0) row.validation = {row.loss + 0.2, 1.4 * row.loss, 4096};
            row.tokens = 8 * 32;
            row.seconds = longest + transfer;
            row.wall_time = header.start_time + static_cast<double>(step);
            block.steps.push_back(row);
            for (std::size_t r = 0; r < ranks; ++r) {
                block.rank_loss.push_back(row.loss);
                block.overhead.push_back(1e-5);
                for (const double mebibytes : {300.0 + 10 * static_cast<double>(r), 400.0, 430.0})
                    block.memory.push_back(static_cast<std::uint64_t>(mebibytes * (1 << 20)));
                const double own = compute[r], waited = row.seconds - own;
                const double times[] = {step == 1 ? 2.0 : 0.0,
                                        row.seconds,
                                        row.seconds,
                                        0.01 * own,
                                        0.34 * own,
                                        0.05 * own,
                                        0.6 * own,
                                        waited,
                                        waited,
                                        0.04 * own};
                for (std::size_t region = 0; region < paths.size(); ++region) {
                    block.times.push_back(times[region]);
                    block.calls.push_back(1);
                }
            }
        }
        writer.append(block);
    }
    writer.finish();
}

}  // namespace lockstep::analysis::test
