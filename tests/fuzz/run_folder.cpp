// What a run's folder keeps for the next launch and for the analysis. Parts: metrics.jsonl, rates.json, positions.json.
#include <algorithm>
#include <filesystem>

#include "analysis/load/positions.hpp"
#include "calibrate/rates.hpp"
#include "fuzz/harness.hpp"
#include "trace/records.hpp"
#include "watch/run_folder.hpp"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::vector<std::string> parts = fuzz::parts(fuzz::text_of(data, size), 3);
    const std::string folder = fuzz::folder() + "/run";
    std::filesystem::remove_all(folder);
    fuzz::write_file("run/metrics.jsonl", parts[0]);
    fuzz::write_file("run/rates.json", parts[1]);
    fuzz::write_file("run/positions.json", parts[2]);
    fuzz::judge(size, [&] {
        watch::RunFolder run(folder);
        run.write_description(parts[2]);
        fuzz::require(fuzz::read_file(folder + "/run.toml") == parts[2], "run.toml reads back differently");
        run.open_metrics(3);
        trace::StepNumbers step;
        step.step = 4;
        run.write_step(step);
        step.joules = step.instructions = 2.5;
        step.cycles = step.processor_seconds = 2;
        step.tokens = 8;
        step.skipped = 1;
        run.write_step(step);
        run.write_validation(4, 2.5, 1.25);
        const std::string written = fuzz::read_file(folder + "/metrics.jsonl");
        fuzz::require(std::count(written.begin(), written.end(), '\n') >= 3 && written.ends_with("}\n"),
                      "the lines of a step are not whole");
        run.open_metrics(4);
        fuzz::require(fuzz::read_file(folder + "/metrics.jsonl") == written, "lines of a step are lost");
        const auto rates = calibrate::rates_from_json(watch::RunFolder::read_rates(folder));
        if (rates) {
            const std::string json = calibrate::to_json(*rates);
            watch::RunFolder::write_rates(folder, json);
            fuzz::require(watch::RunFolder::read_rates(folder) == json, "rates read back differently");
            calibrate::slower_than_before(*rates, *rates);
        }
        watch::RunFolder::write_products(folder, parts[1]);
        fuzz::require(watch::RunFolder::read_products(folder) == parts[1], "products read back differently");
        watch::RunFolder::set_products_aside(folder);
        fuzz::require(!watch::RunFolder::read_products(folder), "products that were set aside are still there");
        watch::RunFolder::write_status(folder, "running", 4, 0, parts[2]);
        fuzz::require(!run.stop_file_exists(), "a stop is requested by nobody");
        fuzz::write_file("run/stop", "");
        fuzz::require(run.stop_file_exists(), "a request to stop is not seen");
        run.remove_stop_file();
        for (const auto& position : analysis::losses_by_position(folder))
            fuzz::require(position.first >= 1 && position.last >= position.first, "a range of positions that is none");
    });
    return 0;
}
