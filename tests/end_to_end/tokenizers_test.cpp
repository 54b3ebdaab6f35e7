// A tokenizer's way: from its files to a token file, a checkpoint, text, and the next run.
#define BOOST_TEST_MODULE tokenizers
#include "end_to_end/command.hpp"

using namespace lockstep::tests;

namespace {

const fs::path recorded = source_path("tests/unit/data/tokenizers"), hugging_face = source_path("tests/hugging_face");

Json json_of(const Result& result) {
    check_exit(result, 0);
    const Json json = Json::parse(result.out, nullptr, false);
    BOOST_TEST_REQUIRE(!json.is_discarded(), result);
    return json;
}

bool built_without(const Workplace& place) {
    const bool missing = contains(run("--version", place.path()).out, "Hugging Face tokenizers: no");
    if (missing) BOOST_TEST_MESSAGE("skipped: built without PCRE2 and utf8proc");
    return missing;
}

// A folder with a tokenizer as it is published, in the workplace.
void add_tokenizer(const Workplace& place, const std::string& name) {
    fs::create_directories(place.path() / "tokenizer");
    fs::copy_file(recorded / (name + ".json"), place.path() / "tokenizer/tokenizer.json",
                  fs::copy_options::overwrite_existing);
    write_file(place.path() / "tokenizer/tokenizer_config.json", R"({"eos_token": "<|endoftext|>"})");
}

std::string checksum_of(const Workplace& place, const std::string& options) {
    return json_of(run("pack --out packed.h5 --format json " + options, place.path()))["checksum"].get<std::string>();
}

}  // namespace

BOOST_AUTO_TEST_SUITE(tokenizers)

BOOST_AUTO_TEST_CASE(a_published_tokenizer_travels_to_the_text) {
    const Workplace place;
    if (built_without(place)) return;
    add_tokenizer(place, "llama3");
    const Json packed = json_of(run("pack --out tokens.h5 --tokenizer tokenizer --format json text", place.path()));
    BOOST_TEST(packed["vocabulary"] == 703);
    BOOST_TEST(packed["tokens"].get<int>() < packed["bytes"].get<int>());
    check_exit(run("verify tokens.h5", place.path()), 0);
    check_exit(run("train run.toml --set data.train=tokens.h5 --set model.vocabulary=703", place.path(), 2), 0);
    const std::string checkpoint = checkpoint_file(place.path(), 12).string();
    check_exit(run("verify " + checkpoint, place.path()), 0);

    // New text with the tokenizer that the token file, the checkpoint and the run's folder keep.
    write_file(place.path() / "new.txt", make_text(4000, 7));
    const std::string first = checksum_of(place, "--tokenizer tokenizer/tokenizer.json new.txt");
    fs::remove_all(place.path() / "tokenizer");
    for (const std::string& kept : {std::string("tokens.h5"), checkpoint, std::string("runs/small")})
        BOOST_TEST(checksum_of(place, "--tokenizer " + kept + " new.txt") == first, kept);

    // The prompt comes back byte by byte, whole characters follow, and the same with the prompt in a file.
    const std::string prompt = "the  small\n\n caf\xC3\xA9 \xF0\x9F\x91\x8D";
    write_file(place.path() / "prompt.txt", prompt);
    const std::string generate = "generate --checkpoint " + checkpoint + " --prompt-file prompt.txt --tokens ";
    for (const char* options :
         {"3 --temperature 1.5", "6 --temperature 3 --seed 2", "6 --seed 3 --top-p 0.9", "6 --top-p 0.5 --top-k 40"}) {
        const Result result = run(generate + options, place.path());
        check_exit(result, 0);
        BOOST_TEST(result.out.starts_with(prompt), result);
        const std::string shown = result.out.substr(prompt.size(), result.out.size() - prompt.size() - 1);
        const std::size_t last = shown.find_last_not_of("\x80\x81\x82\x83");
        BOOST_TEST((last == std::string::npos || static_cast<unsigned char>(shown[last]) < 0xC0), result);
    }
    // Of the most likely token alone, one is left.
    const Result greedy = run(generate + "4 --temperature 0", place.path()),
                 narrow = run(generate + "4 --top-p 1e-9 --seed 5", place.path());
    check_exit(greedy, 0);
    BOOST_TEST(greedy.out == narrow.out);
    const std::string command = "generate --checkpoint " + checkpoint;
    check_exit(run(command, place.path()), 2);
    check_exit(run(command + " --prompt a --prompt-file prompt.txt", place.path()), 2);
    check_exit(run(command + " --prompt-file none.txt", place.path()), 2);
    for (const char* value : {"0", "1.5", "-1"})
        check_exit(run(command + " --prompt a --top-p " + value, place.path()), 2);
}

BOOST_AUTO_TEST_CASE(a_run_that_begins_with_a_checkpoint_reads_text_as_that_did) {
    const Workplace place;
    if (built_without(place)) return;
    add_tokenizer(place, "qwen2");
    check_exit(run("train run.toml --set data.tokenizer=tokenizer --set model.vocabulary=700", place.path(), 2), 0);
    fs::remove_all(place.path() / "tokenizer");
    write_file(place.path() / "fine.toml", R"([run]
name = "fine"
self_test = false
[data]
train = ["text"]
[batch]
global = 12
[schedule]
steps = 4
peak_lr = 1e-4
[checkpoint]
every = 2
)");
    const Result begun = run("train fine.toml --init-from runs/small --stop-at 2", place.path(), 2);
    check_exit(begun, 4);
    BOOST_TEST(contains(begun.error, "plain text is read with the tokenizer of checkpoints/small/step-00000012.h5"),
               begun);
    BOOST_TEST(!contains(begun.error, "token ids stand for other text"), begun);
    // It goes on without the checkpoint that it began with.
    fs::remove_all(place.path() / "checkpoints/small");
    const Result resumed = run("train fine.toml --init-from runs/small --resume auto", place.path(), 3);
    check_exit(resumed, 0);
    BOOST_TEST(contains(resumed.error, "with the tokenizer of checkpoints/fine/step-00000002.h5"), resumed);
    BOOST_TEST(!contains(resumed.error, "other data"), resumed);
    // A tokenizer that is given is taken.
    const Result bytes = run(
        "train fine.toml --init-from checkpoints/fine --set run.name=bytes --set data.tokenizer=bytes", place.path());
    check_exit(bytes, 0);
    BOOST_TEST(contains(bytes.error, "token ids stand for other text"), bytes);
}

BOOST_AUTO_TEST_CASE(what_is_wrong_with_a_tokenizer_is_said) {
    const Workplace place;
    if (built_without(place)) return;
    add_tokenizer(place, "gpt2");
    const std::string json = read_file(place.path() / "tokenizer/tokenizer.json");
    const auto refused = [&](const std::string& text, int code, const std::string& words) {
        write_file(place.path() / "tokenizer/tokenizer.json", text);
        const Result result = run("pack --out packed.h5 --tokenizer tokenizer text", place.path());
        check_exit(result, code);
        BOOST_TEST(contains(result.error, words), result);
        BOOST_TEST(!fs::exists(place.path() / "packed.h5"));
    };
    refused(json.substr(0, json.size() / 2), 3, "it is not JSON at byte");
    refused("{}", 3, "model is missing");
    std::string other = json;
    other.replace(other.find("\"BPE\""), 5, "\"Unigram\"");
    refused(other, 2, "model.type = Unigram is not implemented");
    check_exit(run("pack --out packed.h5 --tokenizer none text", place.path()), 2);
    const Result text = run("pack --out packed.h5 --tokenizer text text", place.path());
    check_exit(text, 2);
    BOOST_TEST(contains(text.error, "the folder text has neither a tokenizer (tokenizer.json or tokenizer.model) nor"),
               text);
    // Bytes are bytes, whatever lies about.
    fs::create_directory(place.path() / "bytes");
    check_exit(run("pack --out packed.h5 --tokenizer bytes text", place.path()), 0);
    fs::copy(hugging_face / "gpt2", place.path() / "model");
    const Result model = run("pack --out other.h5 --tokenizer model text", place.path());
    check_exit(model, 2);
    BOOST_TEST(contains(model.error, "model does not name its tokenizer"), model);
    BOOST_TEST(contains(model.error, "name another"), model);
}

BOOST_AUTO_TEST_CASE(a_run_that_is_trained_on_tokens_and_validated_on_text_keeps_its_tokenizer) {
    const Workplace place;
    if (built_without(place)) return;
    add_tokenizer(place, "qwen2");
    check_exit(run("train run.toml --set data.tokenizer=tokenizer --set model.vocabulary=700", place.path()), 0);
    std::string tokens;
    for (int i = 0; i < 4000; ++i) tokens += {static_cast<char>(i * 7 % 251), static_cast<char>(i % 2)};
    write_file(place.path() / "tokens.bin", tokens);
    write_file(place.path() / "held-out.txt", make_text(3000, 99));
    fs::copy_file(recorded / "unknown0.json", place.path() / "small.json");
    const std::string command =
        "train run.toml --set data.train=tokens.bin --set model.vocabulary=700 --set schedule.steps=4 "
        "--set schedule.warmup=0 --set checkpoint.every=2 --set run.name=";
    const std::string from =
        "fine --set data.validation=held-out.txt --set validation.every=2 --init-from runs/small --";
    const std::string words = "plain text is read with the tokenizer of checkpoints/";
    const Result begun = run(command + from + "stop-at 2", place.path());
    check_exit(begun, 4);
    BOOST_TEST(contains(begun.error, words + "small/step-00000012.h5"), begun);
    fs::remove_all(place.path() / "checkpoints/small");
    const Result resumed = run(command + from + "resume auto", place.path(), 2);
    check_exit(resumed, 0);
    BOOST_TEST(contains(resumed.error, words + "fine/step-00000002.h5"), resumed);
    const std::string generate = "generate --prompt a --tokens 3 --checkpoint ";
    check_exit(run(generate + "runs/fine", place.path()), 0);
    // So does one on tokens alone, of which data.tokenizer says what they are.
    fs::create_directory(place.path() / "given");
    fs::copy(place.path() / "tokenizer", place.path() / "given");
    check_exit(run(command + "named --set data.tokenizer=given", place.path()), 0);
    check_exit(run(command + "kept --init-from runs/named", place.path(), 2), 0);
    fs::remove_all(place.path() / "checkpoints/named");
    check_exit(run(command + "kept --init-from runs/named --resume auto --set schedule.steps=6", place.path()), 0);
    check_exit(run(generate + "runs/kept", place.path()), 0);
    // They cannot be a smaller tokenizer's.
    const Result smaller = run(command + "smaller --set data.tokenizer=small.json --stop-at 1", place.path());
    check_exit(smaller, 4);
    BOOST_TEST(contains(smaller.error, "the training data has token 5"), smaller);
    BOOST_TEST(contains(smaller.error, "checkpoints will not store the tokenizer"), smaller);
    // Without either a checkpoint does not name a tokenizer, which nothing takes for bytes.
    check_exit(run(command + "unknown", place.path()), 0);
    const std::string fine = checkpoint_file(place.path(), 4, "unknown").string();
    const auto refused = [&](const std::string& arguments, const std::string& remedy) {
        const Result result = run(arguments, place.path());
        check_exit(result, 2);
        BOOST_TEST(contains(result.error, "does not name its tokenizer"), result);
        BOOST_TEST(contains(result.error, remedy), result);
    };
    refused("train run.toml --set run.name=more --set model.vocabulary=700 --init-from " + fine, "set data.tokenizer");
    refused("eval --data held-out.txt --checkpoint " + fine, "cannot read text");
    refused("generate --prompt a --checkpoint " + fine, "cannot generate text");
    refused("pack --out packed.h5 text --tokenizer " + fine, "name another");
    check_exit(run("eval --data tokens.bin --checkpoint " + fine, place.path()), 0);
}

BOOST_AUTO_TEST_CASE(validation_has_the_tokenizer_of_training) {
    const Workplace place;
    if (built_without(place)) return;
    add_tokenizer(place, "llama3");
    check_exit(run("pack --out tokens.h5 --tokenizer tokenizer text", place.path()), 0);
    check_exit(run("pack --out bytes.h5 --tokenizer bytes text", place.path()), 0);
    const auto validated_on = [&](const std::string& data) {
        return run("train run.toml --set data.train=tokens.h5 --set model.vocabulary=703 --set run.name=" +
                       fs::path(data).stem().string() + " --set data.validation=" + data,
                   place.path());
    };
    const Result other = validated_on("bytes.h5");
    check_exit(other, 2);
    BOOST_TEST(
        contains(other.error, "the validation data has a different tokenizer from the training data (huggingface)"),
        other);
    // Plain text is read with it: the same tokens, the same loss.
    check_exit(validated_on("text"), 0);
    check_exit(validated_on("tokens.h5"), 0);
    // One that is named beside tokens of another is looked at, and said to be ignored.
    const std::string tokens = "train run.toml --set data.train=tokens.h5 --set model.vocabulary=703 --stop-at 1 ";
    const Result ignored = run(tokens + "--set run.name=ignored --set data.tokenizer=bytes.h5", place.path(), 2);
    check_exit(ignored, 4);
    BOOST_TEST(count_of(ignored.error, "data.tokenizer = bytes.h5 is ignored") == 1u, ignored);
    const Result missing = run(tokens + "--set run.name=missing --set data.tokenizer=none.model", place.path(), 2);
    check_exit(missing, 2);
    BOOST_TEST(contains(missing.error, "the tokenizer none.model does not exist"), missing);
    const Result same = run(tokens + "--set run.name=same --set data.tokenizer=tokens.h5", place.path());
    BOOST_TEST(!contains(same.error, "ignored"), same);
    const auto of_text = numbers_of(place.path(), "validation_loss", "text");
    BOOST_TEST(!of_text.empty());
    BOOST_TEST((of_text == numbers_of(place.path(), "validation_loss", "tokens")));
}

BOOST_AUTO_TEST_CASE(what_a_tokenizer_lacks_is_said_once) {
    const Workplace place;
    if (built_without(place)) return;
    add_tokenizer(place, "unknown0");
    Json json = Json::parse(read_file(place.path() / "tokenizer/tokenizer.json"));
    json["model"]["unk_token"] = nullptr;
    write_file(place.path() / "tokenizer/tokenizer.json", json.dump());
    const Result result =
        run("train run.toml --set data.tokenizer=tokenizer --set model.vocabulary=300 --set schedule.steps=1 "
            "--set schedule.warmup=0",
            place.path(), 2);
    check_exit(result, 0);
    BOOST_TEST(count_of(result.error, "has no token for") == 1u, result);
}

BOOST_AUTO_TEST_CASE(prompts_are_what_the_user_gave) {
    const Workplace place;
    if (built_without(place)) return;
    add_tokenizer(place, "gpt2");
    check_exit(run("train run.toml --set data.tokenizer=tokenizer --set model.vocabulary=700", place.path()), 0);
    const std::string generate = "generate --checkpoint runs/small --tokens 3 --temperature 0";
    // The token that stands for an empty prompt is not shown.
    const Result empty = run(generate + " --prompt ''", place.path());
    check_exit(empty, 0);
    BOOST_TEST(!contains(empty.out, "<|endoftext|>"), empty);
    BOOST_TEST(empty.out.size() > 1u, empty);
    const std::string prompt("the\0small", 9);
    write_file(place.path() / "prompt.txt", prompt);
    const Result whole = run(generate + " --prompt-file prompt.txt", place.path());
    check_exit(whole, 0);
    BOOST_TEST(whole.out.starts_with(prompt), whole);
    // A full disk.
    for (const std::string& arguments :
         {generate + " --prompt the", std::string("eval --checkpoint runs/small --data text"),
          std::string("pack --out packed.h5 text"), std::string("inspect run.toml"), std::string("inspect runs/small"),
          std::string("verify runs/small")}) {
        const Result full = run(arguments + " > /dev/full", place.path());
        check_exit(full, 1);
        BOOST_TEST(contains(full.error, "cannot print the result"), full);
    }
    // A folder whose tokenizer has more tokens than its model.
    fs::copy(hugging_face / "gpt2", place.path() / "model");
    fs::copy(place.path() / "tokenizer/tokenizer.json", place.path() / "model/tokenizer.json");
    const Result beyond = run("generate --checkpoint model --prompt ' the small'", place.path());
    check_exit(beyond, 2);
    BOOST_TEST(contains(beyond.error, "the model of model has 64 tokens"), beyond);
}

BOOST_AUTO_TEST_SUITE_END()
