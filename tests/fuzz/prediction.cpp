// Predictions of scaling, as lockstep-analyze scaling and report take them with --prediction.
#include "analysis/predict/prediction.hpp"

#include <nlohmann/json.hpp>

#include "fuzz/harness.hpp"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string path = fuzz::write_file("prediction.json", fuzz::text_of(data, size));
    fuzz::judge(size, [&] {
        const analysis::PredictionFile prediction = analysis::read_prediction(path);
        for (const auto& curve : prediction.scaling.curves)
            analysis::prediction_table(curve, prediction.unit).print(TableFormat::text);
        analysis::numbers_table(prediction).print(TableFormat::json);
        analysis::left_out_table(prediction).print(TableFormat::csv);
        analysis::prediction_rows(prediction).print(TableFormat::markdown);
        const std::string again = analysis::json_of(prediction).dump();
        const auto comparison = analysis::compare_prediction(prediction, {}, {});
        analysis::json_of(comparison, prediction);
    });
    return 0;
}
