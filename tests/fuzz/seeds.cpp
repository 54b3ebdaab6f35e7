#include "fuzz/seeds.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>

#include "checkpoint/courses.hpp"
#include "cluster/flight_page.hpp"
#include "cluster/flight_recorder.hpp"
#include "exchange/safetensors.hpp"
#include "fuzz/description_seeds.hpp"
#include "fuzz/harness.hpp"
#include "hdf5/hdf5.hpp"
#include "megatron_files.hpp"
#include "places.hpp"
#include "watch/watch_report.hpp"

namespace lockstep::fuzz {
namespace {

namespace fs = std::filesystem;
using namespace std::string_literals;

// Deeper than recursion survives.
std::string deep_json() {
    constexpr std::size_t levels = 100000;
    return std::string(levels, '[') + std::string(levels, ']');
}

// The first lines alone: the others are like them.
Inputs measured_steps() {
    const std::string table = read_file(tests::source_path("tests/plan/a100_3d_topologies.csv"));
    std::size_t end = 0;
    for (int line = 0; line < 6; ++line) end = std::min(table.find('\n', end), table.size() - 1) + 1;
    const std::string columns =
        "hidden,layers,heads,dp,tp,pp,micro_batch,global_batch,gpus,recompute,outcome,memory_gb,"
        "seconds_per_iteration\n";
    Inputs inputs = {table.substr(0, end), columns};
    for (const char* row : {"64,20000,4,1,1,1,1,8,,,,,", "64,4,3,1,1,1,1,8,,,,,", "64,4,4,1,1,8,1,8,,full,,,",
                            "64,4,4,1,1,1,1,8,,cheap,,,", "64,4,4,1,1,1,1,8,2,none,oom,,", "64,4,4,4,1,1,4,8,,,,,",
                            "64,4,4,1,1,1,1,8,,none,ok,-1,2", "64.5,4,4,1,1,1,1,8,,,,,", ",4,4,1,1,1,1,8,,,,,",
                            "64,4,4,1,1,1,1,8,,some,,,", "64,4,4,1,1,1,1,8,1,none,ok,1,2"})
        inputs.push_back(columns + row + "\n");
    inputs.emplace_back("gpus,hidden\n1,2\n");
    return inputs;
}

Inputs imported_tables() {
    Inputs inputs = contents_of("tests/unit/analysis/published", ".csv");
    inputs.emplace_back(
        "# by rank\nrun,ranks,rank,batch,total,compute,communication,tokens_per_second,peak_memory_bytes\n"
        "g1,1,0,64,2233.50,2000,,410.5,1048576\ng2,2,0,64,1384.64,1200.5,101.2,330,2097152\n"
        "g2,2,1,64,806.75,700,99.1,331,2097152\n");
    inputs.emplace_back(
        "run,rank,validation,checkpoint,initialization,optimizer,data_loading,data_movement,\"a \"\"b\"\"\"\r\n"
        "u,0,1,2,3,4,5,6,\"x, y\"\r\nv,1,1e3,2,3,4,5,6,\"two\nlines\"\r\n");
    return inputs;
}

Inputs predictions() {
    const std::string range = R"({"low": 1, "median": 2, "high": 3})";
    return {
        R"({"format": )" + deep_json() + "}",
        R"({"format": "lockstep-scaling-prediction", "format_version": )" + deep_json() + "}",
        R"({"format": "lockstep-scaling-prediction", "format_version": 1, "made": "2026-01-01", "program_version": "1",
"commit": "c", "command_line": "x", "unit": "step", "model_ranks": 1, "ranks_per_node": 4,
"hardware": {"name": "m", "origin": "o", "nodes": 2},
"runs": [{"name": "r", "path": "p", "ranks": 1, "nodes": 1, "batch": 8, "seconds": 2, "started": null}],
"settings": {"a": "b"},
"curves": [{"kind": "strong", "batch": 8, "tokens_a_sequence": null, "base_ranks": 1, "base_seconds": 2,
"most_ranks": null, "remarks": ["r"], "points": [{"ranks": 2, "nodes": 1, "batch": 8, "sequences_per_replica": 4,
"seconds": )" +
            range + R"(, "tokens_per_second": )" + range + R"(, "speedup": )" + range + R"(, "efficiency": )" + range +
            R"(, "communication_share": )" + range + R"(, "parts": {"compute": 1}}]}],
"numbers": [{"name": "n", "title": "t", "believed": 1, "value": )" +
            range + R"(, "measured": true}],
"left_out": [{"ranks": 2, "batch": 8, "measured": 1, "predicted": 2, "error": 1}], "left_out_error": 0.1,
"remarks": ["x"]})"};
}

Inputs topologies() {
    Inputs inputs;
    for (const std::string& text : contents_of("tests/unit/cluster/topologies", ".xml")) inputs.push_back('\3' + text);
    return inputs;
}

// Folders in the Hugging Face layout; those of adapters have another file.
std::vector<fs::path> model_folders(const std::string& file) {
    std::vector<fs::path> folders;
    for (const auto& entry : fs::directory_iterator(tests::source_path("tests/hugging_face")))
        if (fs::exists(entry.path() / file)) folders.push_back(entry.path());
    std::sort(folders.begin(), folders.end());
    return folders;
}

Inputs safetensors() {
    std::vector<exchange::StoredTensor> tensors = {
        {"a", "F32", {2, 3}, 0, 24}, {"b", "BF16", {4}, 0, 8}, {"empty", "F16", {0, 3}, 0, 0}};
    Inputs inputs = {exchange::safetensors_beginning(tensors) + std::string(32, '\1')};
    const auto add = [&](const std::string& json) {
        std::string length;
        tests::append_number(length, static_cast<std::uint64_t>(json.size()));
        inputs.push_back(length + json + std::string(8, '\1'));
    };
    const auto add_tensor = [&](const std::string& values) { add(R"({"a": {)" + values + "}}"); };
    for (const char* type : {"F32", "I64", "F64", "F4", "odd"})
        for (const char* offsets : {"[0, 8]", "[4, 8]", "[0, 16]", "[0, 4]", "[0]", "[0, 4, 8]", "[8, 0]"})
            add_tensor(R"("dtype": ")"s + type + R"(", "shape": [2], "data_offsets": )" + offsets);
    std::string axes = "1";
    for (int axis = 0; axis < 40; ++axis) axes += ", 1";
    for (const std::string& shape : {axes, "18446744073709551615"s, "9223372036854775807, 4"s, "-1"s, "1.5"s, "true"s,
                                     "null"s, "\"2\""s, "{}"s, "[]"s})
        add_tensor(R"("dtype": "F32", "data_offsets": [0, 8], "shape": [)" + shape + "]");
    add_tensor(R"("dtype": "F32")");
    add_tensor(R"("dtype": "F32", "dtype": "F32")");
    add_tensor(R"("dtype": 7)");
    add(R"({"a": 7})");
    add(R"({"__metadata__": {"a": "b"}, "a": {"dtype": "U8", "shape": [3], "data_offsets": [0, 3]},
"b": {"dtype": "U8", "shape": [5], "data_offsets": [3, 8]}})");
    return inputs;
}

Inputs model_configs() {
    Inputs inputs = {R"({"architectures": )" + deep_json() + "}"};
    for (const fs::path& folder : model_folders("config.json"))
        inputs.push_back(read_file((folder / "config.json").string()));
    return inputs;
}

// The file with one more tensor, of these bytes.
std::string with_tensor(const exchange::SafetensorsFile& file, const exchange::StoredTensor& more,
                        const std::string& bytes) {
    std::vector<exchange::StoredTensor> tensors = file.tensors();
    std::string data;
    for (const exchange::StoredTensor& tensor : tensors)
        data.append(reinterpret_cast<const char*>(file.data(tensor)), tensor.bytes);
    tensors.push_back(more);
    return exchange::safetensors_beginning(tensors) + data + bytes;
}

// Tensors that are no parameters: the head of tied weights, right and wrong, a constant, and one that is not known.
Inputs models_with_more_tensors(const std::string& config, const exchange::SafetensorsFile& file) {
    Inputs inputs;
    for (exchange::StoredTensor tensor : file.tensors()) {
        if (tensor.name != "transformer.wte.weight") continue;
        std::string bytes(reinterpret_cast<const char*>(file.data(tensor)), tensor.bytes);
        tensor.name = "lm_head.weight";
        inputs.push_back(joined({config, "", with_tensor(file, tensor, bytes)}));
        bytes.back() = static_cast<char>(bytes.back() ^ 1);
        inputs.push_back(joined({config, "", with_tensor(file, tensor, bytes)}));
    }
    for (const char* name : {"transformer.h.0.attn.bias", "transformer.h.0.attn.more"})
        inputs.push_back(joined({config, "", with_tensor(file, {name, "F32", {1}, 0, 4}, "\0\0\0\0"s)}));
    std::string many = config;
    for (int i = 0; i < 20; ++i) many.insert(1, "\"odd_key_" + std::to_string(i) + "\": 1, ");
    inputs.push_back(joined({many, "", read_file(file.path())}));
    return inputs;
}

Inputs whole_models() {
    const std::string tensors_of_torch = "no pickle";
    Inputs inputs = {joined({"{}", "", "", tensors_of_torch}), joined({"", "", "x"}), joined({"{}", ""})};
    for (const fs::path& folder : model_folders("config.json")) {
        const std::string config = read_file((folder / "config.json").string()),
                          path = (folder / "model.safetensors").string(), tensors = read_file(path);
        inputs.push_back(joined({config, "", tensors}));
        if (folder.filename() != "gpt2") continue;
        std::string map;
        const exchange::SafetensorsFile file(path);
        for (const exchange::StoredTensor& tensor : file.tensors())
            map += (map.empty() ? "\"" : ", \"") + tensor.name + "\": \"a.safetensors\"";
        inputs.push_back(joined({config, R"({"weight_map": {)" + map + "}}", tensors}));
        inputs.push_back(
            joined({config, R"({"weight_map": {)" + map + R"(, "b": "b.safetensors"}})", tensors, tensors}));
        const Inputs more = models_with_more_tensors(config, file);
        inputs.insert(inputs.end(), more.begin(), more.end());
    }
    return inputs;
}

Inputs adapters() {
    Inputs inputs;
    for (const fs::path& folder : model_folders("adapter_config.json"))
        inputs.push_back(joined({read_file((folder / "adapter_config.json").string()),
                                 read_file((folder / "adapter_model.safetensors").string())}));
    return inputs;
}

// What stands for a regular expression in tokenizer.json, as JSON has it.
constexpr auto patterns = std::to_array<const char*>({R"(\\w+|\\W)",
                                                      R"(\\d{1,3}|\\D)",
                                                      ".",
                                                      "^a",
                                                      "a$",
                                                      "(?i:ab)",
                                                      "(?<n>a)",
                                                      "(a)",
                                                      "(?:a|b)+?",
                                                      "a{2,3}?",
                                                      "a++",
                                                      "a{2}+",
                                                      R"([a-c\\d-z])",
                                                      "[^a-]",
                                                      R"([\\w])",
                                                      R"([\\d-a])",
                                                      R"([a-\\d])",
                                                      R"(\\x41\\u0041\\x{1F600})",
                                                      R"(\\x4)",
                                                      R"(\\xff)",
                                                      R"(\\uD800)",
                                                      R"(\\x{110000})",
                                                      R"(\\x{41)",
                                                      R"(\\v\\t\\ \\.)",
                                                      R"(\\q)",
                                                      R"(\\b)",
                                                      R"(\\p{Han}+)",
                                                      R"(\\p{Nothing})",
                                                      R"(\\P{L})",
                                                      "[[:alpha:]]",
                                                      "(?=a)",
                                                      "(?!a)",
                                                      "(?<=a)b",
                                                      "(?>a)",
                                                      "(",
                                                      ")",
                                                      "[",
                                                      R"(\\)",
                                                      "a{",
                                                      "a{,3}",
                                                      "[a&&b]",
                                                      "[z-a]"});

Inputs tokenizers() {
    Inputs inputs;
    const std::string split = read_file(tests::source_path("tests/unit/data/tokenizers/split0.json"));
    constexpr std::string_view begin = "\"Regex\":\"";
    const std::size_t found = split.find(begin), from = found + begin.size();
    if (found == std::string::npos) finding("split0.json has no regular expression");
    std::size_t end = from;
    while (split[end] != '"') end += split[end] == '\\' ? 2 : 1;
    for (const char* pattern : patterns)
        inputs.push_back(joined({split.substr(0, from) + pattern + split.substr(end), "", "One 2 three\n"}));
    for (const std::string& json : contents_of("tests/unit/data/tokenizers", ".json"))
        inputs.push_back(joined({json, R"({"eos_token": "<|endoftext|>"})", "Hello, world!  It's 1234 \xc3\xa9\n\n"}));
    return inputs;
}

Inputs sentencepiece_models() {
    const hdf5::File file = hdf5::File::open(tests::source_path("tests/compatibility/sentencepiece-tokens.h5"));
    return {joined({"Hello, world!  It's 1234 \xc3\xa9\n", file.read_text("tokenizer_model")})};
}

template <std::size_t size>
std::string bytes_of(const std::array<unsigned char, size>& numbers) {
    return {numbers.begin(), numbers.end()};
}

// Of the first of these, by gzip -9 and by zstd -19.
Inputs json_lines() {
    const std::string plain = "{\"text\": \"one\"}\n{\"text\": \"two\\n\"}\n";
    constexpr auto gzip = std::to_array<unsigned char>(
        {0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03, 0xab, 0x56, 0x2a, 0x49, 0xad,
         0x28, 0x51, 0xb2, 0x52, 0x50, 0xca, 0xcf, 0x4b, 0x55, 0xaa, 0xe5, 0xaa, 0x86, 0xf3, 0x4b,
         0xca, 0xf3, 0x63, 0xf2, 0x80, 0x22, 0x00, 0x96, 0xe4, 0x17, 0x6d, 0x22, 0x00, 0x00, 0x00});
    constexpr auto zstd = std::to_array<unsigned char>(
        {0x28, 0xb5, 0x2f, 0xfd, 0x24, 0x22, 0xf5, 0x00, 0x00, 0xc0, 0x7b, 0x22, 0x74, 0x65, 0x78,
         0x74, 0x22, 0x3a, 0x20, 0x22, 0x6f, 0x6e, 0x65, 0x22, 0x7d, 0x0a, 0x74, 0x77, 0x6f, 0x5c,
         0x6e, 0x22, 0x7d, 0x0a, 0x01, 0x00, 0x66, 0x9b, 0x4b, 0xc5, 0x4e, 0xad, 0x33});
    Inputs inputs = {'\1' + bytes_of(gzip), '\1' + bytes_of(gzip) + bytes_of(gzip), '\2' + bytes_of(zstd)};
    for (const std::string& text :
         {plain, "\n{\"a\": [1, {\"b\": null}], \"text\": \"\\u00e9\"}"s, "{\"a\": true, \"text\": 5}"s, "[1]"s,
          "{\"b\": 1e999}"s, "{\"text\": \"one\"} more"s, "{\"a\": " + deep_json() + "}"})
        inputs.push_back('\0' + text);
    return inputs;
}

Inputs raw_tokens() {
    std::string plain, shard;
    for (std::uint16_t token = 0; token < 20; ++token) tests::append_number(plain, token);
    constexpr std::size_t header_numbers = 256;
    std::array<std::int32_t, header_numbers> header{20240520, 1, 20};
    for (const std::int32_t number : header) tests::append_number(shard, number);
    return {plain, shard + plain};
}

Inputs megatron_pairs() {
    Inputs inputs;
    for (const int code : {8, 4, 5, 1}) {
        const tests::MegatronData data{code, {{1, 2, 3}, {4, 5}, {}, {6, 7, 8, 9}}, {0, 2, 4}};
        inputs.push_back(joined({tests::megatron_tokens(data), tests::megatron_index(data)}));
        inputs.push_back(joined({tests::megatron_tokens(data), tests::older_megatron_index(data)}));
    }
    return inputs;
}

Inputs run_folders() {
    return {joined({R"({"step": )" + deep_json() + "}\n", R"({"ranks": )" + deep_json() + "}",
                    R"({"positions": )" + deep_json() + "}"}),
            joined({"{\"step\": 1, \"loss\": 2.5}\n{\"step\": 4, \"loss\": null}\nhalf a li\n",
                    R"({"time": "t", "ranks": 2, "hosts": ["a", "b"], "device": "d", "precision": "fp32",
"rates": {"matrix products": {"median": 1, "lowest": 1, "seconds": 1, "ranks_of_a_group": 1, "groups": 2,
"latency_seconds": 0.1}}})",
                    R"({"positions": [{"first_position": 1, "last_position": 2, "validation_loss": 2.5},
{"first_position": 3, "last_position": 4, "validation_loss": null}]})"})};
}

Inputs run_statuses() {
    const std::string status = R"({"state": "lost", "step": 7, "exit_code": 5, "reason": "a \"rank\" died",
"lost_nodes": ["n1", "n2"], "suspects": [], "time": "t", "version": "1", "commit": null})";
    return {joined({status, "lost_nodes"}), joined({status, "sate"}), joined({R"({"state": ""})", "state"}),
            R"({"state": )" + deep_json() + "}"};
}

watch::RankReport rank_report(int rank, std::uint64_t begun, bool waits) {
    watch::RankReport report;
    watch::FlightState& state = report.flight;
    state.rank = rank;
    state.ranks = 3;
    state.host = "n" + std::to_string(rank);
    state.process = 100 + rank;
    state.step = 7;
    state.region = "epoch/step/backward";
    state.groups = {{"all", "0-2", begun, 0}};
    watch::FlightOperation operation;
    operation.number = begun;
    operation.group = "all";
    operation.bytes = 2048;
    state.operations = {operation};
    if (waits) state.waiting = operation;
    return report;
}

Inputs watch_reports() {
    const auto input = [](const std::vector<watch::RankReport>& ranks) {
        return '\2' + watch::node_report_text(ranks);
    };
    watch::RankReport gone = rank_report(2, 4, false), stopped = rank_report(1, 5, false),
                      sends = rank_report(0, 5, true);
    gone.alive = false;
    stopped.stopped = true;
    sends.flight.waiting->kind = cluster::FlightKind::send;
    sends.flight.waiting->peer = 1;
    return {"\2[{\"rank\": " + deep_json() + "}]",
            input({rank_report(0, 5, true), rank_report(1, 5, true), rank_report(2, 4, false)}),
            input({rank_report(0, 5, true), gone}), input({sends, stopped})};
}

// Where a recorder that was used differs from a new one.
Inputs flight_recorders() {
    const std::string path = folder() + "/recorder";
    {
        cluster::FlightRecorder recorder;
        if (!recorder.share(path)) finding("a flight recorder cannot be shared");
        recorder.set_rank(1, 4, "a-host");
        recorder.set_step(12);
        recorder.name_region(0, "epoch");
        recorder.set_region(0);
        const int group = recorder.add_group("all", {0, 1, 2, 3});
        recorder.done(recorder.begin(group, cluster::FlightKind::all_reduce, 1024));
        static_cast<void>(recorder.wait_for(recorder.begin(group, cluster::FlightKind::send, 8, 2)));
    }
    const std::string used = read_file(path);
    const cluster::FlightPage fresh;
    const char* before = reinterpret_cast<const char*>(&fresh);
    constexpr std::size_t word = 8;
    std::string input;
    for (std::size_t at = 0; at + word <= std::min(used.size(), sizeof fresh); at += word)
        if (std::memcmp(used.data() + at, before + at, word) != 0) {
            tests::append_number(input, static_cast<std::uint16_t>(at / word));
            input += used.substr(at, word);
        }
    return {input};
}

Inputs courses() {
    return {checkpoint::courses_to_text({{"0123456789abcdef", 0}, {"fedcba9876543210", 100}})};
}

Inputs calibration_rounds() {
    return {R"({"settings": "settings", "busy_share": 0.1, "seconds": [[1, 2], [3, 4.5]]})"};
}

Inputs host_lists() {
    return {"n01:4\nn02 slots=4 # a remark\n\n# none\nlogin.cluster\n"};
}

Inputs product_choices() {
    return {R"({"a library": {"a kind": {"algorithm": "3", "seconds": 1, "first_seconds": 1, "proposals": )" +
                deep_json() + "}}}",
            R"({"a library": {"a kind": {"algorithm": "3", "seconds": 0.5, "first_seconds": 0.75, "proposals": 4}}})"};
}

// Every base as it is, for each of the readers; then an edit of each kind at some objects. An input begins with the
// base, whether its checksums are made right (0), and the reader.
Inputs edits(std::size_t bases, std::size_t readers) {
    Inputs inputs;
    for (std::size_t base = 0; base < bases; ++base) {
        const std::string begin = static_cast<char>(base) + std::string(readers > 0 ? 2 : 0, '\0');
        inputs.push_back(begin);
        for (std::size_t reader = 1; reader < readers; ++reader)
            inputs.push_back(static_cast<char>(base) + std::string(1, '\0') + static_cast<char>(reader));
        for (char kind = 0; kind < 12; ++kind)
            for (char object = 0; object < 12; object = static_cast<char>(object + 3))
                inputs.push_back(begin + kind + object + std::string("\0\1\0\5\0\2", 6));
    }
    return inputs;
}

}  // namespace

std::map<std::string, std::vector<std::string>> seeds() {
    return {{"run_description", run_descriptions()},
            {"machine", machines()},
            {"plan_request", plan_requests()},
            {"measured_steps", measured_steps()},
            {"imported_table", imported_tables()},
            {"prediction", predictions()},
            {"topology", topologies()},
            {"safetensors", safetensors()},
            {"model_config", model_configs()},
            {"model_folder", whole_models()},
            {"adapters", adapters()},
            {"tokenizer_json", tokenizers()},
            {"sentencepiece", sentencepiece_models()},
            {"json_lines", json_lines()},
            {"raw_tokens", raw_tokens()},
            {"megatron", megatron_pairs()},
            {"run_folder", run_folders()},
            {"run_status", run_statuses()},
            {"watch_report", watch_reports()},
            {"flight_recorder", flight_recorders()},
            {"courses", courses()},
            {"calibration_rounds", calibration_rounds()},
            {"host_list", host_lists()},
            {"product_choices", product_choices()},
            {"checkpoint", edits(4, 4)},
            {"token_file", edits(2, 3)},
            {"trace", edits(5, 0)}};
}

}  // namespace lockstep::fuzz
