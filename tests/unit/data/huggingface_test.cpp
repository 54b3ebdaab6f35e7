#define BOOST_TEST_MODULE data_huggingface
#include <sys/mman.h>

#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <cstring>
#include <random>

#include "data/dataset.hpp"
#include "data/encode.hpp"
#include "data/huggingface/pair_encoder.hpp"
#include "data/pack.hpp"
#include "data/part_encoder.hpp"
#include "data/text_files.hpp"
#include "data/token_file.hpp"
#include "device/parallel.hpp"
#include "unit/data/huggingface_cases.hpp"

using namespace lockstep;
using namespace lockstep::data;

namespace {

using Tokens = std::vector<std::int32_t>;

// Texts of more than what is looked at behind a part (4 KiB), cut where it is hard.
std::vector<std::string> long_texts() {
    std::vector<std::string> texts;
    std::string mixed;
    std::minstd_rand random(3);
    const auto cases = recorded_cases("gpt2");
    while (mixed.size() < 40000) mixed += cases[random() % cases.size()].text;
    std::erase(mixed, '\0');  // else it is no text file
    texts.push_back(mixed);
    std::string pieces;
    const std::vector<std::string> pool = {" ",       "\n",        "\r\n",          "  ",           "word",    "'s",
                                           "1",       "e\xCC\x81", "<|endoftext|>", "\xE4\xB8\xAD", ".",       "<left>",
                                           "<right>", "\xFF",      "\xE2\x82",      "  <sp>",       "\xCC\xA3"};
    while (pieces.size() < 30000) pieces += pool[random() % pool.size()];
    texts.push_back(pieces);
    texts.push_back("begin" + std::string(20000, ' ') + "\n\n" + std::string(9000, '\n') + "end");
    std::string marks = "a";
    for (int i = 0; i < 5000; ++i) marks += i % 2 ? "\xCC\x81" : "\xCC\xA3";  // two classes of marks, unsorted
    texts.push_back(marks + " end");
    std::string letters;
    for (int i = 0; i < 4000; ++i) letters += "\xE4\xBA\xBA";
    texts.push_back(letters);
    texts.push_back(std::string(12000, '\x80') + "x" + std::string(12000, '7'));
    return texts;
}

Tokens encoded_in_parts(const Tokenizer& tokenizer, const std::vector<std::string>& paths, std::size_t part_bytes) {
    EncodeOptions options;
    options.progress = false;
    options.part_bytes = part_bytes;
    std::string bytes;
    encode_text(collect_text_files(paths), tokenizer, options,
                [&](const void* data, std::size_t count) { bytes.append(static_cast<const char*>(data), count); });
    BOOST_REQUIRE(tokenizer.token_width() == 2);
    Tokens tokens;
    for (std::size_t at = 0; at < bytes.size(); at += 2) {
        std::uint16_t token = 0;
        std::memcpy(&token, bytes.data() + at, sizeof token);
        tokens.push_back(token);
    }
    return tokens;
}

}  // namespace

BOOST_DATA_TEST_CASE(tokens_are_those_of_the_library, boost::unit_test::data::make(recorded_names()), name) {
    const auto tokenizer = recorded_tokenizer(name);
    BOOST_TEST(tokenizer->kind() == "huggingface");
    for (const auto& [text, tokens] : recorded_cases(name)) {
        const Tokens found = tokenizer->encode(text);
        BOOST_TEST((found == tokens), name << ": " << nlohmann::json(text).dump() << " gives "
                                           << nlohmann::json(found).dump() << ", not "
                                           << nlohmann::json(tokens).dump());
        // A second time from the cache.
        BOOST_TEST((tokenizer->encode(text) == tokens));
    }
}

BOOST_AUTO_TEST_CASE(decoding_gives_the_bytes_back) {
    for (const char* name : {"gpt2", "llama3", "smollm"}) {
        const auto tokenizer = recorded_tokenizer(name);
        for (const auto& [text, tokens] : recorded_cases(name)) BOOST_TEST((tokenizer->decode(tokens) == text));
    }
    const auto tokenizer = recorded_tokenizer("gpt2");
    const auto beyond = static_cast<std::int32_t>(tokenizer->vocabulary());
    BOOST_TEST(tokenizer->decode({beyond, -1, 1 << 30}) == "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
    // Characters of several tokens come in parts.
    const Tokens parts = tokenizer->encode("\xF0\x90\x8D\x88");
    BOOST_TEST_REQUIRE(parts.size() > 1u);
    std::string together;
    for (const auto part : parts) together += tokenizer->decode({part});
    BOOST_TEST(together == "\xF0\x90\x8D\x88");
}

BOOST_DATA_TEST_CASE(tokens_do_not_depend_on_where_a_text_is_cut, boost::unit_test::data::make(recorded_names()),
                     name) {
    const TemporaryFolder folder;
    const auto tokenizer = recorded_tokenizer(name);
    BOOST_REQUIRE(tokenizer->parts() != nullptr);
    const int before = threads();
    set_threads(2);
    for (const std::string& text : long_texts()) {
        const std::string path = folder.write("text", text);
        const Tokens whole = tokenizer->encode(text);
        for (const std::size_t part : {199u, 997u, 16381u})
            BOOST_TEST((encoded_in_parts(*tokenizer, {path}, part) == whole),
                       name << ": parts of " << part << " bytes of " << text.size());
    }
    // Also byte by byte, and several documents.
    const std::string first = "The first  one,\n\n it's<|endoftext|> 12\xCC\x81 e\xCC\x81 \xF0\x9F\x91\x8D\r\n",
                      second = "  \n", third = "third";
    std::vector<std::string> paths;
    Tokens whole;
    for (const auto& text : {first, second, third}) {
        if (!whole.empty() && tokenizer->boundary() >= 0) whole.push_back(tokenizer->boundary());
        const Tokens part = tokenizer->encode(text);
        whole.insert(whole.end(), part.begin(), part.end());
        paths.push_back(folder.write(std::to_string(paths.size()), text));
    }
    for (std::size_t part = 1; part < 12; ++part)
        BOOST_TEST((encoded_in_parts(*tokenizer, paths, part) == whole), name << ": parts of " << part);
    set_threads(before);
}

BOOST_AUTO_TEST_CASE(only_what_needs_it_is_encoded_as_a_whole) {
    for (const auto& name : recorded_names()) {
        const bool joins = name == "split2" || name == "split3" || name == "split4" || name == "split5";
        BOOST_TEST(recorded_tokenizer(name)->parts()->divides() == !(joins || name == "alone"), name);
    }
}

BOOST_AUTO_TEST_CASE(invalid_utf8_becomes_replacement_characters_as_in_python) {
    const std::string bad = "\xEF\xBF\xBD";
    const auto times = [&](int count) {
        std::string text;
        for (int i = 0; i < count; ++i) text += bad;
        return text;
    };
    const std::vector<std::pair<std::string, std::string>> cases = {{"\xFF", bad},
                                                                    {"a\xE2\x82", "a" + bad},
                                                                    {"\xE2(\xA1", bad + "(" + bad},
                                                                    {"\xF0\x9F\x98z", bad + "z"},
                                                                    {"\xED\xA0\x80", times(3)},
                                                                    {"\xC0\x80", times(2)},
                                                                    {"\xF4\x90\x80\x80", times(4)},
                                                                    {"\xF8\x88\x80\x80\x80", times(5)},
                                                                    {"\xE0\x80\x80", times(3)},
                                                                    {"\xF0\x80\x80\x80", times(4)},
                                                                    {"\xC3", bad},
                                                                    {"\x80\x80", times(2)},
                                                                    {"\xF1\x80\x80\xE2\x82\xC3(", times(3) + "("},
                                                                    {"\xE2\x82\xAC\xE2\x82", "\xE2\x82\xAC" + bad}};
    for (const char* name : {"gpt2", "qwen2"}) {
        const auto tokenizer = recorded_tokenizer(name);
        for (const auto& [text, same_as] : cases) {
            BOOST_TEST((tokenizer->encode(text) == tokenizer->encode(same_as)), nlohmann::json(same_as).dump());
            BOOST_TEST((tokenizer->decode(tokenizer->encode(text)) == same_as));
        }
    }
}

BOOST_AUTO_TEST_CASE(the_boundary_is_the_token_that_ends_a_document) {
    const std::string json = recorded_json("added");
    const auto boundary = [&](const TokenizerFiles& others) {
        TokenizerFiles files = {{"tokenizer.json", json}};
        files.insert(files.end(), others.begin(), others.end());
        return make_tokenizer("huggingface", files)->boundary();
    };
    const auto id_of = [&](const std::string& token) { return recorded_tokenizer("added")->encode(token).at(0); };
    BOOST_TEST(boundary({}) == id_of("<|endoftext|>"));
    BOOST_TEST(boundary({{"tokenizer_config.json", "{}"}}) == id_of("<|endoftext|>"));
    BOOST_TEST(boundary({{"tokenizer_config.json", R"({"eos_token": "<|end|>"})"}}) == id_of("<|end|>"));
    BOOST_TEST(boundary({{"tokenizer_config.json", R"({"eos_token": {"content": "<|end|>"}})"}}) == id_of("<|end|>"));
    BOOST_TEST(boundary({{"tokenizer_config.json", R"({"eos_token": null})"},
                         {"special_tokens_map.json", R"({"eos_token": "<both>"})"}}) == id_of("<both>"));
    check_error(
        [&] {
            boundary({{"tokenizer_config.json", R"({"eos_token": "<none>"})"}});
        },
        ExitCode::usage, {"tokenizer_config.json", "<none>"});
    check_error(
        [&] {
            boundary({{"tokenizer_config.json", R"({"eos_token": 7})"}});
        },
        ExitCode::damaged, {"tokenizer_config.json", "eos_token"});
    check_error([&] { boundary({{"tokenizer_config.json", "{"}}); }, ExitCode::damaged, {"tokenizer_config.json"});
    auto without = nlohmann::json::parse(recorded_json("unknown0"));
    without["model"]["unk_token"] = nullptr;
    without["model"]["vocab"].erase("<|endoftext|>");
    without["added_tokens"] = nlohmann::json::array();
    BOOST_TEST(make_tokenizer("huggingface", {{"tokenizer.json", without.dump()}})->boundary() == -1);
}

BOOST_AUTO_TEST_CASE(a_folder_is_opened_with_the_files_that_belong_to_it) {
    const TemporaryFolder folder;
    const std::string json = recorded_json("qwen2");
    folder.write("model/tokenizer.json", json);
    folder.write("model/tokenizer_config.json", R"({"eos_token": "<|endoftext|>"})");
    folder.write("model/merges.txt", "#version: 0.2\n");
    folder.write("model/generation_config.json", "{}");
    folder.write("model/config.json", "{}");
    const auto opened = open_tokenizer(folder.path("model"));
    const TokenizerFiles expected = {{"generation_config.json", "{}"},
                                     {"merges.txt", "#version: 0.2\n"},
                                     {"tokenizer.json", json},
                                     {"tokenizer_config.json", R"({"eos_token": "<|endoftext|>"})"}};
    BOOST_TEST((opened->files() == expected));
    BOOST_TEST((open_tokenizer(folder.path("model/tokenizer.json"))->files() == expected));
    BOOST_TEST(opened->vocabulary() == 700);
    folder.folder("empty");
    check_error([&] { open_tokenizer(folder.path("empty")); }, ExitCode::usage, {"empty", "tokenizer.json"});
    check_error([&] { open_tokenizer(folder.path("none.json")); }, ExitCode::usage, {"none.json", "does not exist"});
    check_error([&] { open_tokenizer(folder.write("a.json", "{}")); }, ExitCode::damaged, {"a.json"});
    check_error([&] { make_tokenizer("huggingface", {{"vocab.json", "{}"}}); }, ExitCode::damaged, {"tokenizer.json"});
}

BOOST_AUTO_TEST_CASE(a_token_file_keeps_the_tokenizer_and_gives_it_to_new_text) {
    const TemporaryFolder folder;
    folder.write("model/tokenizer.json", recorded_json("llama3"));
    folder.write("model/tokenizer_config.json", R"({"eos_token": "<|endoftext|>"})");
    const std::string text = sample_text(30000), other = sample_text(5000, 7);
    PackOptions options;
    options.paths = {folder.write("text.txt", text), folder.write("other.txt", other)};
    options.out = folder.path("tokens.h5");
    options.tokenizer = folder.path("model");
    const PackResult result = pack(options);
    const auto tokenizer = open_tokenizer(folder.path("model"));
    const TokenFileInfo info = read_token_file_info(options.out);
    BOOST_TEST(info.tokenizer_kind == "huggingface");
    BOOST_TEST((info.tokenizer_files == tokenizer->files()));
    BOOST_TEST(info.vocabulary == tokenizer->vocabulary());
    BOOST_TEST(result.tokens ==
               static_cast<std::int64_t>(tokenizer->encode(text).size() + 1 + tokenizer->encode(other).size()));
    verify_token_file(options.out);
    std::filesystem::remove_all(folder.path("model"));

    PackOptions again = options;
    again.out = folder.path("again.h5");
    again.tokenizer = options.out;
    BOOST_TEST(pack(again).checksum == result.checksum);
    BOOST_TEST((read_token_file_info(again.out).tokenizer_files == info.tokenizer_files));

    DatasetOptions from_text, from_tokens;
    from_text.paths = options.paths;
    from_text.tokenizer = options.out;
    from_tokens.paths = {options.out};
    from_text.length = from_tokens.length = 16;
    const Dataset read(from_text), packed(from_tokens);
    BOOST_TEST(read.tokens() == packed.tokens());
    BOOST_TEST((read.tokenizer_files() == packed.tokenizer_files()));
    Tokens inputs(16), targets(16), same_inputs(16), same_targets(16);
    for (std::int64_t i = 0; i < read.windows(); ++i) {
        read.fetch(i, inputs.data(), targets.data());
        packed.fetch(i, same_inputs.data(), same_targets.data());
        BOOST_TEST((inputs == same_inputs && targets == same_targets));
    }
    // The text's statistics do not depend on the tokenizer.
    PackOptions bytes = options;
    bytes.tokenizer = "bytes";
    bytes.out = folder.path("bytes.h5");
    const PackResult of_bytes = pack(bytes);
    BOOST_TEST(of_bytes.byte_entropy == result.byte_entropy);
    BOOST_TEST(of_bytes.conditional_entropy == result.conditional_entropy);
}

BOOST_AUTO_TEST_CASE(json_lines_are_encoded_as_files_are) {
    const TemporaryFolder folder;
    const auto tokenizer = recorded_tokenizer("gpt2");
    std::vector<std::string> paths;
    std::string lines;
    std::vector<std::uint64_t> expected_begins;
    Tokens expected;
    for (unsigned i = 0; i < 40; ++i) {
        std::string text = i % 7 == 3 ? "x" : sample_text(100 + 700 * i, i + 1);
        std::erase_if(text, [](char letter) { return static_cast<unsigned char>(letter) >= 0x80; });
        paths.push_back(folder.write("in/" + std::to_string(i), text));
        lines += nlohmann::json{{"text", text}, {"id", i}}.dump() + "\n";
        if (i % 5 == 0) lines += "{\"text\": \"\"}\n";
        if (i > 0) expected.push_back(tokenizer->boundary());
        expected_begins.push_back(expected.size());
        const Tokens tokens = tokenizer->encode(text);
        expected.insert(expected.end(), tokens.begin(), tokens.end());
    }
    const std::vector<std::string> file = {folder.write("a.jsonl", lines)};
    for (const std::size_t part : {997u, 65536u}) {
        BOOST_TEST((encoded_in_parts(*tokenizer, paths, part) == expected));
        BOOST_TEST((encoded_in_parts(*tokenizer, file, part) == expected));
        for (const auto& source : {paths, file}) {
            EncodeOptions options;
            options.progress = false;
            options.part_bytes = part;
            std::vector<std::uint64_t> begins;
            options.begin_document = [&](std::uint64_t position) { begins.push_back(position); };
            const EncodeResult result =
                encode_text(collect_text_files(source), *tokenizer, options, [](const void*, std::size_t) {});
            BOOST_TEST(begins == expected_begins, boost::test_tools::per_element());
            BOOST_TEST(result.documents == 40);
            BOOST_TEST(result.empty_documents == (source == file ? 8 : 0));
        }
    }
}

BOOST_AUTO_TEST_CASE(documents_that_are_not_divided_are_held_one_after_another) {
    const TemporaryFolder folder;
    const int before = threads();
    set_threads(2);
    std::vector<std::string> paths;
    for (unsigned i = 0; i < 10; ++i) paths.push_back(folder.write(std::to_string(i), sample_text(5000, i + 1)));
    for (const auto& [name, divides] : {std::pair{"gpt2", true}, std::pair{"split3", false}}) {
        EncodeOptions options;
        options.progress = false;
        options.batch_bytes = 12000;
        std::vector<std::size_t> taken;  // with every group of parts that is in memory
        encode_text(collect_text_files(paths), *recorded_tokenizer(name), options,
                    [&](const void*, std::size_t bytes) { taken.push_back(bytes); });
        BOOST_TEST(taken.size() == (divides ? 1u : 4u), name);
    }
    set_threads(before);
}

BOOST_AUTO_TEST_CASE(text_that_cannot_be_encoded_is_named) {
    const TemporaryFolder folder;
    auto json = nlohmann::json::parse(recorded_json("gpt2"));
    const auto tokenizer_for = [&](const std::string& pattern) {
        json["pre_tokenizer"] = {
            {"type", "Sequence"},
            {"pretokenizers",
             {{{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}},
              {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}}}}};
        return open_tokenizer(folder.write("model/tokenizer.json", json.dump()));
    };
    const auto slow = tokenizer_for("\\s*\\s*\\s*\\s*\\s*\\s*[xy]");
    const std::string spaces(3000, ' ');
    const std::vector<std::string> files = {folder.write("a.txt", "fine"), folder.write("b.txt", spaces)},
                                   lines = {folder.write("c.jsonl",
                                                         "{\"text\": \"fine\"}\n\n{\"text\": \"" + spaces + "\"}\n")};
    const std::vector<std::string> words = {"model/tokenizer.json: pre_tokenizer.pretokenizers[0].pattern.Regex",
                                            "cannot be matched"};
    for (const auto& [paths, place] : {std::pair{files, "b.txt: "}, std::pair{lines, "c.jsonl:3: "}}) {
        auto all = words;
        all.push_back(place);
        check_error([&] { encoded_in_parts(*slow, paths, 65536); }, ExitCode::usage, all);
    }
    // A group that repeats over a run longer than the compiled pattern's stack holds.
    const auto repeats = tokenizer_for("(?:a|b)+");
    const std::string run(100000, 'a');
    BOOST_TEST(repeats->decode(repeats->encode("1" + run + "2")) == "1" + run + "2");
}

BOOST_AUTO_TEST_CASE(of_a_token_that_is_named_twice_the_later_flags_count) {
    // The numbers are those of the library.
    const auto with = [](std::int32_t id, const std::string& content, const std::vector<nlohmann::json>& flags) {
        auto json = nlohmann::json::parse(recorded_json("qwen2"));
        for (const auto& changed : flags) {
            nlohmann::json token = {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
                                    {"rstrip", false}, {"normalized", false}, {"special", true}};
            token.update(changed);
            json["added_tokens"].push_back(token);
        }
        return make_tokenizer("huggingface", {{"tokenizer.json", json.dump()}});
    };
    const nlohmann::json none = nlohmann::json::object(), left = {{"lstrip", true}}, right = {{"rstrip", true}},
                         normalized = {{"normalized", true}, {"lstrip", true}};
    const std::string text = "a <new> b<|endoftext|> c";
    const auto check = [&](const Tokenizer& tokenizer, const Tokens& expected) {
        BOOST_TEST(tokenizer.encode(text) == expected, boost::test_tools::per_element());
    };
    check(*with(700, "<new>", {none}), {65, 221, 700, 397, 0, 333});
    check(*with(700, "<new>", {left, none}), {65, 221, 700, 397, 0, 333});
    check(*with(700, "<new>", {none, right}), {65, 221, 700, 66, 0, 333});
    check(*with(700, "<new>", {none, normalized}), {65, 700, 397, 0, 333});
    check(*with(700, "<new>", {normalized, right}), {65, 221, 700, 66, 0, 333});
    check(*with(0, "<|endoftext|>", {right}), {65, 596, 78, 69, 87, 30, 397, 0, 67});
    BOOST_TEST(with(700, "<new>", {none, right})->vocabulary() == 701);
    check_error([&] { with(1, "<|endoftext|>", {right}); }, ExitCode::damaged,
                {"added_tokens[1].id is 1", "make it 0"});
}

BOOST_AUTO_TEST_CASE(what_is_too_long_for_the_encoder_is_refused) {
    const auto json = huggingface::read_tokenizer_json(recorded_json("gpt2"), "gpt2");
    const huggingface::PairEncoder encoder(json);
    // Addresses that nobody reads.
    const std::size_t bytes = (std::size_t{1} << 30) + 1;
    void* memory = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    BOOST_REQUIRE(memory != MAP_FAILED);
    huggingface::PairEncoder::Scratch scratch;
    Tokens tokens;
    check_error(
        [&] {
            encoder.encode({static_cast<const char*>(memory), bytes}, scratch, tokens);
        },
        ExitCode::usage, {"1073741825 bytes", "1073741824"});
    ::munmap(memory, bytes);
}
