#define BOOST_TEST_MODULE data_huggingface_damage
#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <functional>
#include <random>

#include "unit/data/damage.hpp"
#include "unit/data/huggingface_cases.hpp"

using namespace lockstep;
using namespace lockstep::data;

namespace {

using Json = nlohmann::json;

std::unique_ptr<Tokenizer> made_of(const std::string& json) {
    return make_tokenizer("huggingface", {{"tokenizer.json", json}});
}

Json split_by(const Json& pattern, const char* behaviour = "Isolated") {
    return {{"type", "Split"}, {"pattern", pattern}, {"behavior", behaviour}, {"invert", false}};
}
Json byte_level() {
    return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
}
Json sequence_of(const std::vector<Json>& parts) {
    return {{"type", "Sequence"}, {"pretokenizers", parts}};
}

void refused(const std::function<void(Json&)>& change, ExitCode code, const std::vector<std::string>& words) {
    Json json = Json::parse(recorded_json("gpt2"));
    change(json);
    check_error([&] { made_of(json.dump()); }, code, words);
}

// Tokenizes some text with what was made of damaged files: it must end, and decode to something.
void use(const Tokenizer& tokenizer) {
    const std::string text = "Some text's  1234 \n\n<|endoftext|> caf\xC3\xA9 e\xCC\x81 \xFF\xF0\x9F\x98\x80   " +
                             std::string(200, ' ') + std::string(100, 'a');
    const auto tokens = tokenizer.encode(text);
    for (const auto token : tokens) BOOST_TEST((token >= 0 && token < tokenizer.vocabulary()));
    tokenizer.decode(tokens);
}

enum class Outcome { made, usage, damaged, other };

Outcome outcome_of(const std::string& json) {
    try {
        use(*made_of(json));
        return Outcome::made;
    } catch (const Error& problem) {
        return problem.code() == ExitCode::damaged ? Outcome::damaged
               : problem.code() == ExitCode::usage ? Outcome::usage
                                                   : Outcome::other;
    }
}

// Every place in a JSON value.
void collect_places(Json& value, std::vector<Json*>& places) {
    places.push_back(&value);
    if (value.is_structured())
        for (auto& part : value) collect_places(part, places);
}

std::string damaged_values(const std::string& text, std::minstd_rand& random) {
    Json json = Json::parse(text);
    for (unsigned changes = 1 + static_cast<unsigned>(random() % 3); changes > 0; --changes) {
        std::vector<Json*> places;
        // Most of the values are in the vocabulary; the others matter as much.
        collect_places(json, places);
        if (random() % 3 != 0 && json.is_object() && json["model"].is_object()) {
            places.clear();
            for (const char* key : {"added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder"})
                collect_places(json[key], places);
            for (const char* key : {"unk_token", "dropout", "fuse_unk", "byte_fallback", "ignore_merges", "type"})
                places.push_back(&json["model"][key]);
        }
        static const std::vector<Json> values = {
            nullptr,       true,           false,      -1,    0,       1,           4294967296, 1e300,     "",
            "a",           "a b",          "(",        "[a",  "(a+)+", "\\p{L}+",   ".*",       "(?<=a)b", "\\",
            Json::array(), Json::object(), "Sequence", "NFC", "Regex", "ByteLevel", "Removed"};
        *places[random() % places.size()] =
            random() % 4 == 0 ? Json(*places[random() % places.size()]) : values[random() % values.size()];
        if (!json.is_object()) break;
    }
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

BOOST_AUTO_TEST_CASE(what_is_not_implemented_is_named) {
    const auto set = [](const char* pointer, const Json& value) {
        return [pointer, value](Json& json) { json[Json::json_pointer(pointer)] = value; };
    };
    const auto usage = [&](const char* pointer, const Json& value, const std::vector<std::string>& words) {
        refused(set(pointer, value), ExitCode::usage, words);
    };
    usage("/model/type", "Unigram", {"model.type", "Unigram"});
    usage("/model/type", "WordPiece", {"model.type", "WordPiece"});
    usage("/model/byte_fallback", true, {"model.byte_fallback"});
    usage("/model/dropout", 0.1, {"model.dropout"});
    usage("/model/continuing_subword_prefix", "##", {"model.continuing_subword_prefix"});
    usage("/model/end_of_word_suffix", "</w>", {"model.end_of_word_suffix"});
    usage("/model/novelty", 7, {"model.novelty"});
    usage("/novelty", 7, {"novelty"});
    usage("/normalizer", {{"type", "NFKC"}}, {"normalizer.type", "NFKC"});
    usage("/normalizer", {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}, {{"type", "Lowercase"}}}}},
          {"normalizer.normalizers[1].type", "Lowercase"});
    usage("/pre_tokenizer", nullptr, {"pre_tokenizer", "ByteLevel"});
    usage("/pre_tokenizer", {{"type", "Metaspace"}}, {"pre_tokenizer.type", "Metaspace"});
    usage("/pre_tokenizer", sequence_of({byte_level(), byte_level()}), {"pretokenizers[1]", "follows ByteLevel"});
    usage("/pre_tokenizer", sequence_of({sequence_of({}), byte_level()}),
          {"pretokenizers[0] is a Sequence inside a Sequence, which is not implemented"});
    usage("/post_processor", {{"type", "Novelty"}}, {"post_processor.type", "Novelty"});
    usage("/decoder", {{"type", "Metaspace"}}, {"decoder.type", "Metaspace"});
    for (const char* pattern : {"(?<=a)b",
                                "a(?<!b)",
                                "^a",
                                "a$",
                                "\\bword",
                                "(a+)+",
                                "(?:a*b)*",
                                "a**",
                                "a{2}{3}",
                                "[a[b]]",
                                "[a&&b]",
                                "(?m)a",
                                "\\Ka",
                                "\\1",
                                "(?<name>a)",
                                "a|",
                                "a*",
                                "\\X",
                                "\\R",
                                "a{1,2000}",
                                "\\p{Novel}",
                                "\\pL",
                                "(?=a)",
                                "[[:alpha:]]",
                                "(?#a)b",
                                "a{2}+",
                                "(?R)",
                                "(*UTF8)a",
                                "(*LIMIT_MATCH=1)a",
                                "\\Qa\\E",
                                "a{3,2}",
                                "\\x{d800}",
                                "\\x4"})
        usage("/pre_tokenizer", sequence_of({split_by({{"Regex", pattern}}), byte_level()}),
              {"the stored tokenizer.json: pre_tokenizer.pretokenizers[0].pattern.Regex"});
}

BOOST_AUTO_TEST_CASE(damage_is_said_to_be_damage) {
    const auto damaged = [](const char* pointer, const Json& value, const std::vector<std::string>& words) {
        refused([&](Json& json) { json[Json::json_pointer(pointer)] = value; }, ExitCode::damaged, words);
    };
    damaged("/model", nullptr, {"model"});
    damaged("/model/vocab", Json::object(), {"model.vocab", "empty"});
    damaged("/model/vocab", 1, {"model.vocab"});
    damaged("/model/vocab/a", -1, {"model.vocab"});
    damaged("/model/vocab/a", 1e9, {"model.vocab"});
    damaged("/model/vocab/a", 4194304, {"model.vocab"});
    damaged("/model/vocab/a", 5, {"model.vocab", "number 5"});
    damaged("/model/merges/0", "a", {"model.merges"});
    damaged("/model/merges/0", "a b c", {"model.merges"});
    damaged("/model/merges/0", {"a"}, {"model.merges"});
    damaged("/model/merges/0", "a \xE4\xB8\xAD", {"model.merges", "lacks"});
    damaged("/model/unk_token", "<none>", {"model.unk_token"});
    damaged("/model/ignore_merges", "yes", {"model.ignore_merges"});
    damaged("/added_tokens/0/id", 3, {"added_tokens[0].id"});
    damaged("/added_tokens/0/content", "", {"added_tokens[0].content"});
    damaged("/added_tokens/0/content", std::string(2000, 'x'), {"added_tokens[0].content"});
    damaged("/added_tokens/0/lstrip", nullptr, {"added_tokens[0].lstrip", "missing"});
    damaged("/pre_tokenizer", sequence_of({split_by({{"Regex", ""}}), byte_level()}), {"empty"});
    damaged("/pre_tokenizer", sequence_of({split_by({{"Regex", "a"}}, "Sideways"), byte_level()}), {"Sideways"});
    damaged("/pre_tokenizer", sequence_of(std::vector<Json>(20, byte_level())), {"20 parts"});
    for (const char* pattern : {"[b-a]", "(a", "a)", "[a", "[]", "[^]", "a\\", "\\p{L", "\\x{41", "\\u12", "(?"})
        damaged("/pre_tokenizer", sequence_of({split_by({{"Regex", pattern}}), byte_level()}),
                {"pretokenizers[0].pattern.Regex is not a pattern"});

    check_error([] { made_of(""); }, ExitCode::damaged, {"not JSON"});
    check_error([] { made_of("[]"); }, ExitCode::damaged, {"the top level is not an object"});
    check_error([] { made_of(std::string(100000, '[')); }, ExitCode::damaged, {"nested"});
    check_error([] { made_of("{\"model\": {\"vocab\": {\"\xFF\": 1}}}"); }, ExitCode::damaged, {"not JSON"});
    check_error([] { made_of("{\"added_tokens\": [\"\\ud800\"]}"); }, ExitCode::damaged, {"not JSON"});
}

BOOST_AUTO_TEST_CASE(patterns_that_take_long_end_with_a_sentence) {
    Json json = Json::parse(recorded_json("gpt2"));
    json["pre_tokenizer"] = sequence_of({split_by({{"Regex", "\\s*\\s*\\s*\\s*\\s*\\s*[xy]"}}), byte_level()});
    const auto tokenizer = made_of(json.dump());
    BOOST_TEST(tokenizer->encode("a b x").size() >= 3u);
    check_error([&] { tokenizer->encode(std::string(3000, ' ')); }, ExitCode::usage,
                {"pre_tokenizer.pretokenizers[0].pattern.Regex"});
}

BOOST_AUTO_TEST_CASE(damaged_files_give_a_sentence_or_a_tokenizer) {
    const long rounds = damaged_files(600);
    std::minstd_rand random(11);
    std::array<long, 4> outcomes{};
    const std::vector<std::string> names = {"added", "alone", "llama3", "split0", "unknown1", "qwen2"};
    for (long round = 0; round < rounds; ++round) {
        const std::string text = recorded_json(names[random() % names.size()]);
        const bool bytes = round % 3 == 0;
        const std::string damaged = bytes ? damaged_twin(text, random) : damaged_values(text, random);
        ++outcomes[static_cast<std::size_t>(outcome_of(damaged))];
    }
    BOOST_TEST_MESSAGE("made " << outcomes[0] << ", refused " << outcomes[1] << ", damaged " << outcomes[2]);
    BOOST_TEST(outcomes[3] == 0);
    BOOST_TEST(outcomes[0] > rounds / 50);
    BOOST_TEST(outcomes[1] > rounds / 50);
    BOOST_TEST(outcomes[2] > rounds / 10);
}
