#define BOOST_TEST_MODULE data_json_lines
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <random>
#include <string>
#include <vector>

#include "data/byte_stream.hpp"
#include "data/json_lines.hpp"
#include "data/pack.hpp"
#include "data/text_files.hpp"
#include "data/token_file.hpp"
#include "unit/data/damage.hpp"
#include "unit/data/temporary_folder.hpp"

#ifdef LOCKSTEP_ZLIB
#include <zlib.h>
#endif
#ifdef LOCKSTEP_ZSTD
#include <zstd.h>
#endif

using namespace lockstep;
using namespace lockstep::data;

namespace {

#ifdef LOCKSTEP_ZLIB
std::string gzipped(const std::string& text) {
    z_stream state{};
    BOOST_REQUIRE(deflateInit2(&state, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) == Z_OK);
    std::string out(deflateBound(&state, text.size()) + 64, '\0');
    state.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
    state.avail_in = static_cast<uInt>(text.size());
    state.next_out = reinterpret_cast<Bytef*>(out.data());
    state.avail_out = static_cast<uInt>(out.size());
    BOOST_REQUIRE(deflate(&state, Z_FINISH) == Z_STREAM_END);
    out.resize(state.total_out);
    deflateEnd(&state);
    return out;
}
#endif
#ifdef LOCKSTEP_ZSTD
std::string zstandard(const std::string& text) {
    std::string out(ZSTD_compressBound(text.size()), '\0');
    out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
    return out;
}
#endif

struct Form {
    const char* ending;
    std::string (*encoded)(const std::string&);
};
std::vector<Form> forms() {
    return {
        {"", [](const std::string& text) { return text; }},
#ifdef LOCKSTEP_ZLIB
        {".gz", gzipped},
#endif
#ifdef LOCKSTEP_ZSTD
        {".zst", zstandard},
#endif
    };
}

std::vector<std::string> texts_of(const std::string& path, const std::string& field = "text") {
    std::vector<std::string> texts;
    JsonLines lines(path, field);
    std::string text;
    while (lines.next(text)) texts.push_back(text);
    return texts;
}

}  // namespace

BOOST_AUTO_TEST_CASE(each_line_gives_its_text) {
    const TemporaryFolder folder;
    const std::string content =
        "\xEF\xBB\xBF{\"text\": \"one\"}\n"
        "\n  \r\n"
        "{\"id\": 7, \"meta\": {\"text\": \"no\", \"list\": [1, {\"text\": \"no\"}]}, \"text\": \"two\\nlines \\u00e9\"}\r\n"
        "{\"text\": \"\"}\n"
        "{\"text\": \"first\", \"text\": \"last\", \"score\": 1.5e3, \"none\": null, \"true\": true}\n"
        "{\"text\": \"no newline at the end\"}";
    const std::vector<std::string> expected = {"one", "two\nlines \xC3\xA9", "last", "no newline at the end"};
    for (const Form& form : forms()) {
        const std::string path = folder.write(std::string("a.jsonl") + form.ending, form.encoded(content));
        BOOST_TEST(texts_of(path) == expected, boost::test_tools::per_element());
        JsonLines lines(path, "text");
        std::string text;
        while (lines.next(text)) continue;
        BOOST_TEST(lines.empty() == 1);
        BOOST_TEST(lines.consumed() == form.encoded(content).size());
    }
    const std::string other = folder.write("b.jsonl", "{\"a.b\": \"x\", \"text\": 1}\n");
    BOOST_TEST(texts_of(other, "a.b") == std::vector<std::string>{"x"}, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(several_members_are_one_file) {
    const TemporaryFolder folder;
    std::vector<std::string> expected;
    std::string first, second;
    for (int i = 0; i < 3000; ++i) {
        std::string text = sample_text(100, static_cast<unsigned>(i + 1));
        for (char& letter : text)
            if (letter < ' ' || letter > '~') letter = ' ';  // also the bytes of letters beyond ASCII, which may be cut
        expected.push_back(text);
        (i < 1500 ? first : second) += "{\"text\": \"" + expected.back() + "\"}\n";
    }
    for (const Form& form : forms()) {
        const std::string path =
            folder.write(std::string("a.json") + form.ending, form.encoded(first) + form.encoded(second));
        BOOST_TEST((texts_of(path) == expected));
    }
#ifdef LOCKSTEP_ZLIB
    BOOST_TEST(texts_of(folder.write("b.json.gz", gzipped(first) + std::string(512, '\0'))).size() == 1500u);
    check_error([&] { texts_of(folder.write("c.json.gz", gzipped(first) + "x")); }, ExitCode::damaged, {"c.json.gz"});
#endif
}

BOOST_AUTO_TEST_CASE(broken_lines_name_the_file_and_the_line) {
    const TemporaryFolder folder;
    const std::string good = "{\"text\": \"good\"}\n";
    const auto check = [&](const std::string& line, const std::vector<std::string>& words,
                           ExitCode code = ExitCode::damaged) {
        const std::string path = folder.write("a.jsonl", good + good + line);
        auto all = words;
        all.push_back(path + ":3:");
        check_error([&] { texts_of(path); }, code, all);
    };
    check("{\"text\": \"cut", {"not valid JSON", "missing closing quote"});
    check("{\"text\": \"a\", \"score\": 1e999}\n", {"too large", "1e999"});
    check("{\"text\": \"a\", \"score\": 1" + std::string(100000, '0') + "}\n", {"too large", "(number overflow"});
    check("{\"text\": \"a\", \"title\": \"\\ud800\"}\n", {"not valid JSON", "surrogate"});
    check("{\"text\": \"a\"} {\"text\": \"b\"}\n", {"not valid JSON"});
    check("plain words\n", {"not valid JSON"});
    check("{\"text\": \"\xFF\"}\n", {"not valid JSON", "UTF-8"});
    check("{\"text\": NaN}\n", {"not valid JSON"});
    check(std::string("{\"text\": \"\0\"}\n", 14), {"not valid JSON"});
    check("[{\"text\": \"a\"}]\n", {"not a JSON object"});
    check("\"text\"\n", {"not a JSON object"});
    // The user's mistake rather than the file's damage.
    check("{\"content\": \"a\"}\n", {"no field \"text\"", "jsonl_field"}, ExitCode::usage);
    check("{\"meta\": {\"text\": \"a\"}}\n", {"no field \"text\""}, ExitCode::usage);
    for (const char* value : {"7", "null", "true", "[\"a\"]", "{\"text\": \"a\"}", "1.5"})
        check(std::string("{\"text\": ") + value + "}\n", {"\"text\" is not a string", "jsonl_field"}, ExitCode::usage);
    check("{\"text\": \"a\", \"deep\": " + std::string(1000000, '[') + "\n", {"nested more than 256 deep"});
    check("{\"text\": \"" + std::string(JsonLines::longest_line, 'x') + "\"}\n", {"longer than 64 MiB"});
    check_error([&] { texts_of(folder.path("missing.jsonl")); }, ExitCode::usage, {"missing.jsonl"});
}

BOOST_AUTO_TEST_CASE(damaged_files_never_crash) {
    const TemporaryFolder folder;
    std::string content;
    for (unsigned i = 0; i < 6; ++i)
        content += "{\"id\": " + std::to_string(i) + ", \"text\": \"words " + std::to_string(i * 77777) +
                   "\", \"meta\": [1, 2, {\"a\": null}]}\n";
    std::minstd_rand random(7);
    const long files = damaged_files(3000);
    long told = 0;
    for (long i = 0; i < files; ++i)
        for (const Form& form : forms()) {
            const std::string path =
                folder.write(std::string("a.jsonl") + form.ending, damaged_twin(form.encoded(content), random));
            try {
                texts_of(path);
            } catch (const Error& problem) {
                BOOST_TEST((problem.code() == ExitCode::damaged || problem.code() == ExitCode::usage), problem.what());
                ++told;
            }
        }
    BOOST_TEST(told > files * static_cast<long>(forms().size()) / 3);
}

BOOST_AUTO_TEST_CASE(truncated_files_are_told) {
    const TemporaryFolder folder;
    const std::string content = "{\"text\": \"" + sample_text(9) + "\"}\n{\"text\": \"more of it\"}\n";
    for (const Form& form : forms()) {
        if (form.ending[0] == '\0') continue;
        const std::string whole = form.encoded(content);
        for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
            const std::string path = folder.write(std::string("a.jsonl") + form.ending, whole.substr(0, bytes));
            check_error([&] { texts_of(path); }, ExitCode::damaged, {path});
        }
    }
}

#ifndef __SANITIZE_ADDRESS__  // which keeps freed memory for a while
BOOST_AUTO_TEST_CASE(a_small_file_that_unpacks_to_much_takes_little_memory) {
    const TemporaryFolder folder;
    std::string thousand;
    for (int i = 0; i < 1000; ++i) thousand += "{\"text\": \"" + std::string(1000, 'a') + "\"}\n";
    for (const Form& form : forms()) {
        if (form.ending[0] == '\0') continue;
        const std::string part = form.encoded(thousand);
        std::string all;
        for (int i = 0; i < 100; ++i) all += part;
        BOOST_TEST(all.size() < 1000000u);
        const std::string path = folder.write(std::string("a.jsonl") + form.ending, all);
        ::rusage before{}, after{};
        ::getrusage(RUSAGE_SELF, &before);
        std::int64_t count = 0;
        JsonLines reader(path, "text");
        std::string text;
        while (reader.next(text)) ++count;
        ::getrusage(RUSAGE_SELF, &after);
        BOOST_TEST(count == 100000);
        BOOST_TEST(after.ru_maxrss - before.ru_maxrss < 16384);  // KiB
    }
}
#endif

#if defined(LOCKSTEP_ZSTD) && !defined(__SANITIZE_ADDRESS__)  // which ends the program where memory is refused
BOOST_AUTO_TEST_CASE(what_needs_more_memory_than_there_is_is_not_called_damaged) {
    const TemporaryFolder folder;
    // Its size is not known at the beginning, so that the window is as large as it was asked for.
    const auto compressed = [](int window_log) {
        const std::string text = "{\"text\": \"a\"}\n";
        std::string out(1000, '\0');
        ZSTD_CCtx* state = ZSTD_createCCtx();
        ZSTD_CCtx_setParameter(state, ZSTD_c_windowLog, window_log);
        ZSTD_outBuffer to{out.data(), out.size(), 0};
        ZSTD_inBuffer from{text.data(), text.size(), 0};
        ZSTD_compressStream2(state, &to, &from, ZSTD_e_flush);
        BOOST_REQUIRE(ZSTD_compressStream2(state, &to, &from, ZSTD_e_end) == 0);
        ZSTD_freeCCtx(state);
        return out.substr(0, to.pos);
    };
    const std::string path = folder.write("a.jsonl.zst", compressed(27));
    BOOST_TEST(texts_of(path).size() == 1u);
    check_error([&] { texts_of(folder.write("b.jsonl.zst", compressed(28))); }, ExitCode::usage,
                {"b.jsonl.zst", "--long=28 or more", "--long=27 or less"});
    std::ifstream sizes("/proc/self/statm");
    rlim_t pages = 0;
    sizes >> pages;
    rlimit unlimited{}, limited{};
    BOOST_REQUIRE(getrlimit(RLIMIT_AS, &unlimited) == 0);
    limited = unlimited;
    limited.rlim_cur = pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + (rlim_t{32} << 20);
    BOOST_REQUIRE(setrlimit(RLIMIT_AS, &limited) == 0);
    const std::size_t more = std::size_t{128} << 20;
    void* room = mmap(nullptr, more, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED) {
        check_error([&] { texts_of(path); }, ExitCode::fault, {"a.jsonl.zst", "out of memory"});
    } else {  // qemu takes the limit and ignores it
        munmap(room, more);
        BOOST_TEST_MESSAGE("no memory is refused here");
    }
    BOOST_REQUIRE(setrlimit(RLIMIT_AS, &unlimited) == 0);
}
#endif

BOOST_AUTO_TEST_CASE(documents_of_all_kinds_of_text_make_one_stream) {
    const TemporaryFolder folder;
    folder.write("in/a.txt", "plain");
    folder.write("in/c.json", "{\"text\": \"as it is\"}");  // text, in a folder
    std::string expected = "plain";
    for (const Form& form : forms()) {
        folder.write(std::string("in/b.jsonl") + form.ending,
                     form.encoded("{\"body\": \"one\"}\n{\"body\": \"\"}\n{\"body\": \"two\"}\n"));
        expected += std::string("\0one\0two", 8);
    }
    expected += std::string("\0", 1) + "{\"text\": \"as it is\"}";
    for (const std::size_t batch : {std::size_t{1}, std::size_t{1} << 20}) {
        PackOptions options;
        options.paths = {folder.path("in")};
        options.out = folder.path("tokens.h5");
        options.jsonl_field = "body";
        options.batch_bytes = batch;
        const PackResult result = pack(options);
        const auto lines = static_cast<std::int64_t>(forms().size());
        BOOST_TEST(result.files == 2 + lines);
        BOOST_TEST(result.documents == 2 + 2 * lines);
        BOOST_TEST(result.empty_documents == lines);
        BOOST_TEST(result.tokens == static_cast<std::int64_t>(expected.size()));
        BOOST_TEST(result.bytes == result.tokens - result.documents + 1);
        const TokenFile file(options.out);
        BOOST_TEST((std::string(reinterpret_cast<const char*>(file.tokens()), expected.size()) == expected));
        BOOST_TEST(file.info().document_count == result.documents);
    }
    // A named .json file has lines.
    PackOptions named;
    named.paths = {folder.path("in/c.json")};
    named.out = folder.path("named.h5");
    BOOST_TEST(pack(named).bytes == 8);
    named.paths = {folder.write("empty.jsonl", "{\"text\": \"\"}\n\n")};
    check_error([&] { pack(named); }, ExitCode::usage, {"empty.jsonl", "only empty documents"});
    BOOST_TEST(!is_json_lines("a/.jsonl.txt", true));
    BOOST_TEST(is_json_lines("a.ndjson.gz", false));
    BOOST_TEST(!is_json_lines("a.json", false));
    BOOST_TEST(is_json_lines("a.json.zst", false));
}

#ifdef LOCKSTEP_SENTENCEPIECE
BOOST_AUTO_TEST_CASE(a_tokenizer_is_trained_on_lines_as_on_files) {
    const TemporaryFolder folder;
    std::string lines;
    for (unsigned i = 0; i < 5; ++i) {
        std::string text = sample_text(8000, i + 1);
        for (char& letter : text)
            if (letter < ' ' && letter != '\n') letter = ' ';
        folder.write("in/" + std::to_string(i), text);
        for (auto at = text.find('\n'); at != std::string::npos; at = text.find('\n', at)) text.replace(at, 1, "\\n");
        lines += "{\"text\": \"" + text + "\"}\n";
    }
    PackOptions options;
    options.paths = {folder.path("in")};
    options.out = folder.path("text.h5");
    options.train_tokenizer = 330;
    const PackResult of_text = pack(options);
    for (const Form& form : forms()) {
        options.paths = {folder.write(std::string("a.jsonl") + form.ending, form.encoded(lines))};
        const PackResult of_lines = pack(options);
        BOOST_TEST(of_lines.checksum == of_text.checksum);
        BOOST_TEST(of_lines.tokens == of_text.tokens);
    }
}
#endif
