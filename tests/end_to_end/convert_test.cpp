// Models of Hugging Face's layout, as a user meets them: out of a run and back, evaluated, trained further, refused.
#define BOOST_TEST_MODULE convert
#include "end_to_end/beginnings.hpp"
#include "places.hpp"

using namespace lockstep::tests;

namespace {

struct Model {
    std::string name, keys, architecture;
};
const std::vector<Model> models = {
    {"ttt-linear", "mixer = \"ttt-linear\"", "TTTForCausalLM"},
    {"ttt-mlp",
     "mixer = \"ttt-mlp\"\n[model.ttt]\ngate = true\nshare_qk = true\npre_conv = true\nbase_lr_warmup = 0.01",
     "TTTForCausalLM"},
    {"gpt2", "norm = \"layer\"\nmlp = \"gelu\"\nposition = \"learned\"\nbias = \"all\"", "GPT2LMHeadModel"},
    {"llama", "kv_heads = 1\ntied_head = false\nnorm_epsilon = 1e-5", "LlamaForCausalLM"},
    {"qwen2", "bias = \"qkv\"", "Qwen2ForCausalLM"},
    {"qwen3", "qk_norm = true\nhead_width = 8", "Qwen3ForCausalLM"},
};

// A run of six steps, of which three are done, and the same data for what follows it.
void write_description(const fs::path& folder, const Model& model) {
    write_file(folder / "run.toml", R"([run]
name = "small"
self_test = false
[data]
train = ["text"]
[batch]
global = 4
[schedule]
steps = 6
warmup = 5
peak_lr = 2e-3
[model]
width = 16
layers = 2
heads = 2
mlp_width = 24
vocabulary = 256
context = 32
)" + model.keys + "\n");
}

double loss_of(const fs::path& folder, const std::string& checkpoint, int ranks = 0) {
    const Result result =
        run("eval --checkpoint " + checkpoint + " --data text/0.txt --length 32 --format json", folder, ranks);
    check_exit(result, 0);
    return Json::parse(result.out).at("validation_loss").get<double>();
}

}  // namespace

BOOST_AUTO_TEST_SUITE(convert)

BOOST_AUTO_TEST_CASE(out_and_back_is_the_same_model) {
    int ranks = 0;
    for (const Model& model : models) BOOST_TEST_CONTEXT(model.name) {
            const Workplace place;
            write_description(place.path(), model);
            check_exit(run("train run.toml --stop-at 3", place.path()), 4);
            const Result out = run("convert runs/small out --shard-size 8kB", place.path(), ranks);
            check_exit(out, 0);
            BOOST_TEST(contains(out.out, model.architecture), out);
            BOOST_TEST(contains(out.out, "does not include optimizer state"), out);
            const Json config = Json::parse(read_file(place.path() / "out/config.json"));
            BOOST_TEST(config["architectures"][0] == model.architecture);
            BOOST_TEST(fs::exists(place.path() / "out/model.safetensors.index.json"));
            check_exit(run("convert out back.h5", place.path(), ranks), 0);
            check_whole(place.path() / "back.h5");
            BOOST_TEST((parameters_of(place.path() / "back.h5") == parameters_of(checkpoint_file(place.path(), 3))));
            BOOST_TEST(state_of(place.path() / "back.h5").at("step") == "0");
            // The same loss of all three; base_lr is warmed up to this step's in the last two.
            const double loss = loss_of(place.path(), "runs/small");
            BOOST_TEST(std::abs(loss_of(place.path(), "out", ranks) - loss) < 1e-6);
            BOOST_TEST(std::abs(loss_of(place.path(), "back.h5") - loss) < 1e-6);
            // Bytes stay bytes, so the texts are the same.
            const std::string generate = " --prompt \"the \" --tokens 12 --temperature 0";
            const Result here = run("generate --checkpoint runs/small" + generate, place.path());
            check_exit(here, 0);
            const Result there = run("generate --checkpoint out" + generate, place.path());
            check_exit(there, 0);
            BOOST_TEST(here.out == there.out);
            ranks = ranks % 3 + 1;
        }
}

// With a frozen parameter, of which there is no average.
BOOST_AUTO_TEST_CASE(averages_are_written_in_place_of_the_parameters) {
    const Workplace place;
    write_description(place.path(), models.front());
    check_exit(run("train run.toml --stop-at 3 --set optimizer.ema=0.5 --set 'model.frozen=[\"blocks/0/mlp/*\"]'",
                   place.path()),
               4);
    check_exit(run("convert runs/small out --ema", place.path(), 2), 0);
    check_exit(run("convert out back.h5", place.path()), 0);
    const auto saved = tensors_of(checkpoint_file(place.path(), 3));
    for (const auto& [name, values] : parameters_of(place.path() / "back.h5")) {
        const std::string path = name.substr(std::string("parameters/").size());
        const auto average = saved.find("optimizer/ema/" + path);
        BOOST_TEST((values == (average == saved.end() ? saved.at("parameters/" + path) : average->second)), path);
        BOOST_TEST((average == saved.end()) == path.starts_with("blocks/0/mlp/"), path);
    }
    const Result refused = run("convert out again --ema", place.path());
    check_exit(refused, 2);
    BOOST_TEST(contains(refused.error, "--ema applies only when a checkpoint is converted"), refused);
}

BOOST_AUTO_TEST_CASE(a_run_begins_with_a_folder_and_resumes) {
    const Workplace place;
    write_description(place.path(), models[3]);
    check_exit(run("train run.toml --stop-at 3", place.path()), 4);
    check_exit(run("convert runs/small out", place.path()), 0);
    const auto expected = parameters_of(checkpoint_file(place.path(), 3));
    write_fine_description(place.path());
    const std::vector<std::pair<std::string, int>> layouts = {
        {"", 0}, {"--set parallel.zero=1", 2}, {"--set parallel.pipeline=2", 2}, {"", 3}};
    for (std::size_t i = 0; i < layouts.size(); ++i) {
        const std::string name = "fine" + std::to_string(i),
                          with = "train fine.toml --init-from out --set run.name=" + name;
        const auto& [more, ranks] = layouts[i];
        const Result begun = run(with + " --stop-at 1 " + more, place.path(), ranks);
        check_exit(begun, 4);
        BOOST_TEST(!contains(begun.error, "warning"), begun);
        BOOST_TEST((parameters_of(checkpoint_file(place.path(), 1, name)) == expected));
        fs::rename(place.path() / "out", place.path() / "away");  // a resume does not need it
        check_exit(run(with + " --resume auto " + more, place.path(), ranks), 0);
        BOOST_TEST((parameters_of(checkpoint_file(place.path(), 2, name)) == expected));
        fs::rename(place.path() / "away", place.path() / "out");
    }
    const Result other = run("train fine.toml --init-from out --set run.name=other --set model.layers=1", place.path());
    check_exit(other, 2);
    BOOST_TEST(contains(other.error, "model.layers"), other);
}

BOOST_AUTO_TEST_CASE(a_sentencepiece_model_works_with_other_files_beside_it) {
    const Workplace place;
    if (contains(run("--version", place.path()).out, "sentencepiece: no")) return;
    write_description(place.path(), models[3]);
    check_exit(run("pack --out tokens.h5 --train-tokenizer 300 text", place.path()), 0);
    check_exit(run("train run.toml --stop-at 1 --set data.train=tokens.h5 --set model.vocabulary=300", place.path()),
               4);
    check_exit(run("convert runs/small out", place.path()), 0);
    const Json config = Json::parse(read_file(place.path() / "out/config.json"));
    BOOST_TEST(config["eos_token_id"].is_number());
    write_file(place.path() / "out/tokenizer_config.json", "{}");
    check_exit(run("convert out back.h5", place.path()), 0);
    for (const std::string checkpoint : {"out", "back.h5"}) {
        check_exit(run("generate --checkpoint " + checkpoint + " --prompt the --tokens 3", place.path()), 0);
        check_exit(run("eval --checkpoint " + checkpoint + " --data text/0.txt --length 16", place.path()), 0);
    }
    // The tokens of its end are known without generation_config.json.
    check_exit(run("convert back.h5 again", place.path()), 0);
    BOOST_TEST(Json::parse(read_file(place.path() / "again/config.json")) == config);
}

BOOST_AUTO_TEST_CASE(tokens_are_evaluated_without_the_tokenizer) {
    const Workplace place;
    const fs::path llama = source_path("tests/hugging_face/llama");
    fs::copy(llama, place.path() / "model");
    write_file(place.path() / "model/tokenizer.json", "{}");  // damaged
    std::string tokens;
    for (int i = 0; i < 400; ++i) tokens += {static_cast<char>(i * i % 64), '\0'};
    write_file(place.path() / "tokens.bin", tokens);
    check_exit(run("eval --checkpoint model --data tokens.bin --length 32", place.path()), 0);
    // By position; the ranges' means weigh up to the whole.
    const std::string by_position = "eval --checkpoint model --data tokens.bin --length 24 --micro 3 --by-position";
    const Json one = Json::parse(run(by_position + " --format json", place.path()).out);
    double sum = 0;
    std::vector<std::int64_t> firsts;
    for (const Json& range : one.at("positions")) {
        firsts.push_back(range.at("first_position"));
        const std::int64_t count = range.at("last_position").get<std::int64_t>() - firsts.back() + 1;
        sum += range.at("validation_loss").get<double>() * static_cast<double>(count);
    }
    BOOST_TEST(firsts == (std::vector<std::int64_t>{1, 2, 3, 4, 6, 8, 12, 16}));
    BOOST_TEST(std::abs(sum / 24 - one.at("validation_loss").get<double>()) < 1e-6);
    const Json two = Json::parse(run(by_position + " --format json", place.path(), 2).out);
    for (std::size_t i = 0; i < firsts.size(); ++i)
        BOOST_TEST(std::abs(one["positions"][i]["validation_loss"].get<double>() -
                            two["positions"][i]["validation_loss"].get<double>()) < 1e-6);
    BOOST_TEST(run(by_position + " --format csv", place.path())
                   .out.starts_with("first_position,last_position,validation_loss,perplexity\n1,1,"));
    const Result text = run("eval --checkpoint model --data text --length 32", place.path());
    BOOST_TEST(text.exit_code != 0, text);
    BOOST_TEST(contains(text.error, "tokenizer.json"), text);
}

BOOST_AUTO_TEST_CASE(a_folder_is_inspected) {
    const Workplace place;
    const fs::path llama = source_path("tests/hugging_face/llama");
    const Result text = run("inspect " + llama.string(), place.path());
    check_exit(text, 0);
    BOOST_TEST(contains(text.out, "LlamaForCausalLM"));
    BOOST_TEST(contains(text.out, "kv_heads = 2"));
    BOOST_TEST(!contains(text.out, "[init]"));
    check_exit(run("inspect " + llama.string() + " --details", place.path()), 2);
    // A name that is no UTF-8.
    const std::string odd = "odd\xFF [model]";
    fs::copy(llama, place.path() / odd);
    const Result odd_text = run("inspect '" + odd + "'", place.path());
    check_exit(odd_text, 0);
    const std::size_t model = text.out.find("\n[model]\n"), model_there = odd_text.out.find("\n[model]\n");
    BOOST_TEST_REQUIRE((model != std::string::npos && model_there != std::string::npos));
    BOOST_TEST(odd_text.out.substr(model_there) == text.out.substr(model));
    const Result odd_json = run("inspect '" + odd + "' --format json", place.path());
    check_exit(odd_json, 0);
    BOOST_TEST(Json::parse(odd_json.out)["architecture"] == "LlamaForCausalLM");
    BOOST_TEST(contains(text.out, "model.layers.1.self_attn.q_proj.weight"));
    const Result json = run("inspect " + llama.string() + "/ --format json", place.path());
    check_exit(json, 0);
    const Json about = Json::parse(json.out);
    BOOST_TEST(about["architecture"] == "LlamaForCausalLM");
    std::int64_t parameters = 0;
    for (const Json& tensor : about["tensors"]) {
        std::int64_t count = 1;
        for (const Json& size : tensor["shape"]) count *= size.get<std::int64_t>();
        parameters += count;
        BOOST_TEST(tensor["file"] == "model.safetensors");
    }
    BOOST_TEST(about["parameters"] == parameters);
}

// A folder made of a model of bytes has bytes for its tokenizer, wherever that is asked for.
BOOST_AUTO_TEST_CASE(bytes_stay_bytes) {
    const Workplace place;
    write_description(place.path(), models[3]);
    check_exit(run("train run.toml --stop-at 1", place.path()), 4);
    check_exit(run("convert runs/small out", place.path()), 0);
    for (const char* tokenizer : {"out", "out/tokenizer.json", "bytes"}) {
        const Result packed =
            run(std::string("pack text --format json --out tokens.h5 --tokenizer ") + tokenizer, place.path());
        check_exit(packed, 0);
        BOOST_TEST(Json::parse(packed.out)["vocabulary"] == 256, packed);
        check_exit(run("eval --checkpoint runs/small --data tokens.h5 --length 32", place.path()), 0);
    }
    // .bin files do not say that they are bytes; data.tokenizer does.
    check_exit(run("pack text --to megatron --out pair", place.path()), 0);
    check_exit(
        run("train run.toml --set run.name=pair --set data.train=pair.bin --set data.tokenizer=bytes --stop-at 1",
            place.path()),
        4);
    check_exit(run("generate --checkpoint runs/pair --prompt a --tokens 2", place.path()), 0);
    const Result begun =
        run("train run.toml --init-from out --set run.name=begun --set data.tokenizer=out --stop-at 1", place.path());
    check_exit(begun, 4);
    BOOST_TEST(!contains(begun.error, "warning"), begun);
}

BOOST_AUTO_TEST_CASE(a_folder_that_is_not_finite_is_refused) {
    const Workplace place;
    fs::copy(source_path("tests/hugging_face/llama"), place.path() / "model");
    const fs::path file = place.path() / "model/model.safetensors";
    std::string bytes = read_file(file);
    write_file(file, bytes.replace(bytes.size() - 4, 4, std::string("\0\0\x80\x7f", 4)));  // infinity
    for (const char* command : {"convert model new", "eval --data text --length 16 --checkpoint model"}) {
        const Result result = run(command, place.path(), 2);
        check_exit(result, 3);
        BOOST_TEST(count_of(result.error, "holds values that are not finite") == 1u, result);
        BOOST_TEST(!fs::exists(place.path() / "new"));
    }
}

BOOST_AUTO_TEST_CASE(a_tokenizer_that_cannot_be_used_is_kept_and_said) {
    const Workplace place;
    fs::copy(source_path("tests/hugging_face/llama"), place.path() / "model");
    write_file(place.path() / "model/tokenizer.json", "{}");
    const Result result = run("convert model model.h5", place.path(), 2);
    check_exit(result, 0);
    BOOST_TEST(count_of(result.error, "the tokenizer is kept but cannot be used") == 1u, result);
}

BOOST_AUTO_TEST_CASE(wrong_input_is_refused_with_a_sentence) {
    const Workplace place;
    const fs::path llama = source_path("tests/hugging_face/llama");
    const auto refuse = [&](const std::string& arguments, int code, const std::string& part, int ranks = 0) {
        const Result result = run(arguments, place.path(), ranks);
        check_exit(result, code);
        BOOST_TEST(contains(result.error, part), result);
        if (ranks > 0) BOOST_TEST(count_of(result.error, part) == 1u, result);
        BOOST_TEST(!fs::exists(place.path() / "new"), arguments);
        BOOST_TEST(!fs::exists(place.path() / "new.tmp"), arguments);
    };
    const auto copy = [&](const std::string& name, const std::string& from, const std::string& to) {
        fs::remove_all(place.path() / name);
        fs::copy(llama, place.path() / name);
        std::string config = read_file(llama / "config.json");
        const std::size_t at = config.find(from);
        BOOST_TEST_REQUIRE(at != std::string::npos);
        write_file(place.path() / name / "config.json", config.replace(at, from.size(), to));
    };
    refuse("convert nowhere new", 2, "nowhere");
    refuse("convert text new", 2, "text");
    refuse("convert " + llama.string() + " text", 2, "exists");
    refuse("convert " + llama.string() + " run.toml", 2, "exists", 2);
    refuse("convert " + llama.string() + " new --dtype bf16", 2, "--dtype");
    refuse("convert " + llama.string() + " new/", 2, "without the slash", 2);
    refuse("convert " + llama.string() + " run.toml/new.h5", 2, "cannot be created");
    check_exit(run("convert " + llama.string() + " model.h5", place.path()), 0);
    refuse("convert model.h5 new --dtype int8", 2, "int8");
    refuse("convert model.h5 new --shard-size 5pounds", 2, "shard-size");
    refuse("convert model.h5 text", 2, "exists");
    copy("odd", "\"silu\"", "\"relu\"");
    refuse("convert odd new", 2, "hidden_act = \"relu\"", 2);
    refuse("eval --checkpoint odd --data text", 2, "hidden_act = \"relu\"");
    refuse("train run.toml --init-from odd", 2, "hidden_act = \"relu\"");
    copy("odd", "\"hidden_size\": 16", "\"hidden_size\": 32");
    refuse("convert odd new", 3, "model.safetensors", 3);
    copy("odd", "\"silu\"", "\"silu\", \"logit_scale\": 2");
    const Result warned = run("convert odd odd.h5", place.path());
    check_exit(warned, 0);
    BOOST_TEST(contains(warned.error, "logit_scale"), warned);
    write_file(place.path() / "model.h5.tmp", "of the user");
    check_exit(run("convert odd model.h5", place.path()), 2);
    BOOST_TEST(read_file(place.path() / "model.h5.tmp") == "of the user");
    copy("odd", "\"silu\"", "\"silu\", \"\\u001b[2J\": 2");
    const Result escaped = run("inspect odd", place.path());
    check_exit(escaped, 0);
    BOOST_TEST(contains(escaped.error, R"(unknown keys: \u001b[2J; they are ignored)"), escaped);
    copy("odd", "\"silu\"", "\"silu\"");
    fs::resize_file(place.path() / "odd/model.safetensors", 20000);
    refuse("convert odd new", 3, "cut short", 2);
    refuse("eval --checkpoint odd --data text", 3, "cut short");
    refuse("inspect odd", 3, "cut short");
    refuse("generate --checkpoint " + llama.string() + " --prompt x", 2, "does not name its tokenizer");
    refuse("convert model.h5 new --shard-size 0", 2, "'0' is not a number above 0");
    refuse("eval --checkpoint model.h5 --data text --length 0", 2, "'0' is not a number above 0");
    fs::remove(place.path() / "odd/config.json");
    for (const char* command : {"convert odd new", "inspect odd", "eval --checkpoint odd --data text"})
        refuse(command, 2, "odd has safetensors but no config.json");
    fs::create_directory(place.path() / "kept");
    fs::copy(place.path() / "model.h5", place.path() / "kept/step-00000007.h5");
    refuse("inspect kept", 2, "kept is a folder of checkpoints; name one of them, such as kept/step-00000007.h5");
}

BOOST_AUTO_TEST_SUITE_END()
