// The prediction as JSON, written and read.

#include "analysis/predict/prediction.hpp"

#include <nlohmann/json.hpp>
#include "base/error.hpp"
#include "base/json_text.hpp"
#include "base/whole_file.hpp"

namespace lockstep::analysis {
namespace {

constexpr const char* format_name = "lockstep-scaling-prediction";
constexpr int format_version = 1;

Json json_range(const Range& range) {
    return {{"low", json_number(range.low)}, {"median", json_number(range.median)}, {"high", json_number(range.high)}};
}

double number(const Json& json, const char* key) {
    const Json& value = json.at(key);
    return value.is_null() ? unknown : value.get<double>();
}

Range range_from(const Json& json) {
    return {number(json, "low"), number(json, "median"), number(json, "high")};
}

Json json_of_curve(const PredictedCurve& curve) {
    Json json = {{"kind", curve.request.kind == CurveKind::strong ? "strong" : "weak"},
                 {"batch", curve.request.batch},
                 {"tokens_a_sequence", json_number(curve.request.tokens_a_sequence)},
                 {"base_ranks", curve.request.base_ranks},
                 {"base_seconds", curve.request.base_seconds},
                 {"most_ranks", curve.most_ranks > 0 ? Json(curve.most_ranks) : Json(nullptr)},
                 {"remarks", curve.remarks}};
    Json& points = json["points"] = Json::array();
    for (const CurvePoint& point : curve.points) {
        Json one = {{"ranks", point.ranks},
                    {"nodes", point.nodes},
                    {"batch", point.batch},
                    {"sequences_per_replica", point.sequences_per_replica}};
        for (const CurveFigure& figure : curve_figures) one[figure.name] = json_range(point.*figure.range);
        Json& parts = one["parts"] = Json::object();
        for (const auto& [name, seconds] : point.parts) parts[name] = seconds;
        points.push_back(std::move(one));
    }
    return json;
}

PredictedCurve curve_from(const Json& json) {
    PredictedCurve curve;
    curve.request.kind = json.at("kind").get<std::string>() == "strong" ? CurveKind::strong : CurveKind::weak;
    curve.request.batch = number(json, "batch");
    curve.request.tokens_a_sequence = number(json, "tokens_a_sequence");
    curve.request.base_ranks = number(json, "base_ranks");
    curve.request.base_seconds = number(json, "base_seconds");
    const double most = number(json, "most_ranks");
    curve.most_ranks = std::isfinite(most) ? most : 0;
    curve.remarks = json.at("remarks").get<std::vector<std::string>>();
    for (const Json& one : json.at("points")) {
        CurvePoint point;
        point.ranks = number(one, "ranks");
        point.nodes = number(one, "nodes");
        point.batch = number(one, "batch");
        point.sequences_per_replica = number(one, "sequences_per_replica");
        for (const CurveFigure& figure : curve_figures) point.*figure.range = range_from(one.at(figure.name));
        for (const auto& [name, seconds] : one.at("parts").items()) point.parts.emplace_back(name, seconds);
        if (!(point.ranks > 0) || !(point.seconds.median > 0))
            throw std::invalid_argument("a point without ranks or time");
        if (!curve.points.empty() && !(point.ranks > curve.points.back().ranks))
            throw std::invalid_argument("points whose ranks do not ascend");
        curve.points.push_back(std::move(point));
    }
    return curve;
}

}  // namespace

Json json_of(const PredictionFile& prediction) {
    Json json = {{"format", format_name},
                 {"format_version", format_version},
                 {"made", prediction.made},
                 {"program_version", prediction.program_version},
                 {"commit", prediction.commit},
                 {"command_line", prediction.command_line},
                 {"level", prediction_level},
                 {"unit", prediction.unit},
                 {"model_ranks", prediction.model_ranks},
                 {"ranks_per_node", prediction.ranks_per_node}};
    Json& hardware = json["hardware"] = {{"name", prediction.hardware}, {"origin", prediction.hardware_origin}};
    for (const auto& [name, value] : prediction.hardware_numbers) hardware[name] = value;
    Json& runs = json["runs"] = Json::array();
    for (const PredictionRun& run : prediction.runs)
        runs.push_back({{"name", run.name},
                        {"path", run.path},
                        {"ranks", run.ranks},
                        {"nodes", run.nodes},
                        {"batch", run.batch},
                        {"seconds", run.seconds},
                        {"started", json_number(run.started)}});
    json["settings"] = prediction.settings;
    Json& curves = json["curves"] = Json::array();
    for (const auto& curve : prediction.scaling.curves) curves.push_back(json_of_curve(curve));
    Json& numbers = json["numbers"] = Json::array();
    for (const auto& one : prediction.scaling.numbers)
        numbers.push_back({{"name", one.name},
                           {"title", one.title},
                           {"believed", json_number(one.believed)},
                           {"value", json_range(one.value)},
                           {"measured", one.measured}});
    Json& left_out = json["left_out"] = Json::array();
    for (const auto& one : prediction.scaling.left_out)
        left_out.push_back({{"ranks", one.ranks},
                            {"batch", one.batch},
                            {"measured", one.measured},
                            {"predicted", one.predicted},
                            {"error", one.error}});
    json["left_out_error"] = prediction.scaling.left_out_error;
    json["remarks"] = prediction.remarks;
    return json;
}

PredictionFile read_prediction(const std::string& path) {
    const std::string text = read_text_file(path);
    const auto json = parse_json<Json>(text);
    if (json.is_discarded() || !json.is_object() || json.value("format", Json()) != format_name) {
        if (json.is_discarded() && text.find(format_name) != std::string::npos)
            throw damaged_error("the prediction {} is not whole JSON; recreate it with lockstep-analyze predict", path);
        throw usage_error(
            "{} is not a prediction; create one with lockstep-analyze predict RUN… --hardware FILE.toml --out FILE",
            path);
    }
    if (json.value("format_version", Json()) != format_version)
        throw usage_error("the prediction {} has format version {}, and this program reads version {}", path,
                          json.value("format_version", Json()).dump(), format_version);
    try {
        PredictionFile prediction;
        prediction.made = json.at("made").get<std::string>();
        prediction.program_version = json.at("program_version").get<std::string>();
        prediction.commit = json.at("commit").get<std::string>();
        prediction.command_line = json.at("command_line").get<std::string>();
        prediction.unit = json.at("unit").get<std::string>();
        prediction.model_ranks = number(json, "model_ranks");
        prediction.ranks_per_node = number(json, "ranks_per_node");
        prediction.hardware = json.at("hardware").at("name").get<std::string>();
        prediction.hardware_origin = json.at("hardware").at("origin").get<std::string>();
        for (const auto& [name, value] : json.at("hardware").items())
            if (value.is_number()) prediction.hardware_numbers.emplace_back(name, value.get<double>());
        for (const Json& run : json.at("runs"))
            prediction.runs.push_back({run.at("name").get<std::string>(), run.at("path").get<std::string>(),
                                       number(run, "ranks"), number(run, "nodes"), number(run, "batch"),
                                       number(run, "seconds"), number(run, "started")});
        prediction.settings = json.at("settings").get<Settings>();
        for (const Json& curve : json.at("curves")) prediction.scaling.curves.push_back(curve_from(curve));
        for (const Json& one : json.at("numbers"))
            prediction.scaling.numbers.push_back({one.at("name").get<std::string>(), one.at("title").get<std::string>(),
                                                  number(one, "believed"), range_from(one.at("value")),
                                                  one.at("measured").get<bool>()});
        for (const Json& one : json.at("left_out"))
            prediction.scaling.left_out.push_back({number(one, "ranks"), number(one, "batch"), number(one, "measured"),
                                                   number(one, "predicted"), number(one, "error")});
        prediction.scaling.left_out_error = number(json, "left_out_error");
        prediction.remarks = json.at("remarks").get<std::vector<std::string>>();
        return prediction;
    } catch (const std::exception& problem) {
        throw damaged_error("the prediction {} is damaged: {}; recreate it with lockstep-analyze predict", path,
                            problem.what());
    }
}

}  // namespace lockstep::analysis
