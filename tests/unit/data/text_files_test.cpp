#define BOOST_TEST_MODULE data_text_files
#include <boost/test/unit_test.hpp>
#include <clocale>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "data/text_files.hpp"
#include "unit/data/temporary_folder.hpp"

using namespace lockstep;
using namespace lockstep::data;

namespace {

std::vector<std::string> names_in(const TextFiles& text, const std::string& folder) {
    std::vector<std::string> names;
    for (const auto& file : text.files) names.push_back(file.path.substr(folder.size() + 1));
    return names;
}

struct Cut {
    std::string bytes;                   // of all batches
    std::vector<std::size_t> begins;     // of spans
    std::vector<std::size_t> documents;  // spans that begin one
};

Cut cut(const TextFiles& text, std::size_t batch_bytes) {
    Cut all;
    TextReader reader(text, batch_bytes);
    TextBatch batch;
    while (reader.next(batch)) {
        std::size_t end = 0;
        for (const auto& span : batch.spans) {
            BOOST_TEST(span.begin >= end);
            BOOST_TEST(span.end > span.begin);
            BOOST_TEST(span.end - span.begin <= 65536u);
            end = span.end;
            all.begins.push_back(all.bytes.size() + span.begin);
            if (span.starts_document) all.documents.push_back(all.begins.back());
        }
        all.bytes += batch.bytes;
    }
    return all;
}

}  // namespace

BOOST_AUTO_TEST_CASE(folders_are_read_in_byte_order_of_their_paths) {
    const std::vector<std::string> names = {"B.txt",     "a.txt",   "a/z.txt",      "a0.txt",
                                            "b/c/d.txt", "b/c.txt", "\xC3\xA9.txt", "z.txt"};
    const std::vector<std::string> expected = {"B.txt",   "a.txt",     "a/z.txt", "a0.txt",
                                               "b/c.txt", "b/c/d.txt", "z.txt",   "\xC3\xA9.txt"};
    const TemporaryFolder folder;
    for (const auto& name : names) folder.write("forward/" + name, "x");
    for (auto name = names.rbegin(); name != names.rend(); ++name) folder.write("backward/" + *name, "x");
    std::setlocale(LC_ALL, "");
    BOOST_TEST(names_in(collect_text_files({folder.path("forward")}), folder.path("forward")) == expected,
               boost::test_tools::per_element());
    BOOST_TEST(names_in(collect_text_files({folder.path("backward") + "/"}), folder.path("backward")) == expected,
               boost::test_tools::per_element());
    std::setlocale(LC_ALL, "C");
    BOOST_TEST(names_in(collect_text_files({folder.path("forward")}), folder.path("forward")) == expected,
               boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(paths_keep_the_order_in_which_they_are_named) {
    const TemporaryFolder folder;
    const std::string z = folder.write("z.txt", "z"), a = folder.write("a.txt", "aa");
    const TextFiles text = collect_text_files({z, a, z});
    BOOST_REQUIRE(text.files.size() == 3u);
    BOOST_TEST(text.files[0].path == z);
    BOOST_TEST(text.files[1].path == a);
    BOOST_TEST(text.bytes() == 4u);
}

BOOST_AUTO_TEST_CASE(what_is_not_text_is_counted_and_what_is_hidden_is_not_seen) {
    const TemporaryFolder folder;
    folder.write("in/text.txt", "text");
    folder.write("in/empty.txt", "");
    folder.write("in/binary", std::string("ab\0cd", 5));
    folder.write("in/late_nul", std::string(65536, 'x') + '\0');
    folder.write("in/.hidden", "text");
    folder.write("in/.git/config", "text");
    std::filesystem::create_symlink("nowhere", folder.path("in/broken"));
    const TextFiles text = collect_text_files({folder.path("in")});
    const std::vector<std::string> expected = {"late_nul", "text.txt"};
    BOOST_TEST(names_in(text, folder.path("in")) == expected, boost::test_tools::per_element());
    BOOST_TEST(text.skipped == 3);
}

BOOST_AUTO_TEST_CASE(links_are_followed_and_loops_end) {
    const TemporaryFolder folder;
    folder.write("in/real/one.txt", "one");
    folder.write("elsewhere/two.txt", "two");
    std::filesystem::create_directory_symlink("..", folder.path("in/real/up"));
    std::filesystem::create_directory_symlink("real", folder.path("in/same"));
    std::filesystem::create_directory_symlink(folder.path("elsewhere"), folder.path("in/away"));
    std::filesystem::create_symlink("loop", folder.path("in/loop"));
    const TextFiles text = collect_text_files({folder.path("in")});
    const std::vector<std::string> expected = {"away/two.txt", "real/one.txt"};
    BOOST_TEST(names_in(text, folder.path("in")) == expected, boost::test_tools::per_element());
    BOOST_TEST(text.skipped == 1);
}

BOOST_AUTO_TEST_CASE(paths_without_text_are_usage_errors) {
    const TemporaryFolder folder;
    const std::string empty = folder.folder("empty"), binary = folder.write("binary", std::string("\0", 1));
    const std::string nothing = folder.write("nothing.txt", "");
    folder.write("binaries/one", std::string("\0", 1));
    check_error([&] { collect_text_files({empty}); }, ExitCode::usage, {empty, "no text"});
    check_error([&] { collect_text_files({folder.path("binaries")}); }, ExitCode::usage, {"binaries", "no text"});
    check_error([&] { collect_text_files({binary}); }, ExitCode::usage, {binary, "not text"});
    check_error([&] { collect_text_files({nothing}); }, ExitCode::usage, {nothing, "empty"});
    check_error([&] { collect_text_files({folder.path("missing")}); }, ExitCode::usage, {"missing", "does not exist"});
    check_error([&] { collect_text_files({}); }, ExitCode::usage, {"no path"});
    check_error([&] { collect_text_files({"/dev/null"}); }, ExitCode::usage, {"/dev/null"});
}

BOOST_AUTO_TEST_CASE(spans_do_not_depend_on_the_batch) {
    const TemporaryFolder folder;
    const std::string lines = sample_text(300000), one_line(200001, 'x');
    std::string letters;  // three bytes each, no newline: cut between letters
    while (letters.size() < 150000) letters += "\xE2\x82\xAC";
    const std::vector<std::string> documents = {
        lines, "short", one_line, letters, std::string(65536, 'y'), std::string(65537, 'z')};
    std::vector<std::string> paths;
    std::string expected;
    for (std::size_t i = 0; i < documents.size(); ++i) {
        paths.push_back(folder.write("d" + std::to_string(i), documents[i]));
        expected += (i > 0 ? std::string(1, '\0') : "") + documents[i];
    }
    const TextFiles text = collect_text_files(paths);
    const Cut whole = cut(text, 1 << 24);
    BOOST_TEST((whole.bytes == expected));
    BOOST_TEST(whole.documents.size() == documents.size());
    for (const auto begin : whole.begins) BOOST_TEST((static_cast<unsigned char>(whole.bytes[begin]) & 0xC0) != 0x80);
    for (const std::size_t batch : {1u, 1000u, 65536u, 65537u, 100000u, 262144u}) {
        const Cut other = cut(text, batch);
        BOOST_TEST((other.bytes == expected));
        BOOST_TEST(other.begins == whole.begins, boost::test_tools::per_element());
        BOOST_TEST(other.documents == whole.documents, boost::test_tools::per_element());
    }
}

BOOST_AUTO_TEST_CASE(a_file_that_changes_while_it_is_read_is_a_usage_error) {
    const TemporaryFolder folder;
    const std::string path = folder.write("text.txt", "0123456789");
    for (const std::string changed : {"01234", "0123456789abc"}) {
        folder.write("text.txt", "0123456789");
        const TextFiles text = collect_text_files({path});
        folder.write("text.txt", changed);
        check_error([&] { cut(text, 1000); }, ExitCode::usage, {path, "changed"});
    }
}
