#include "data/pack.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <memory>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/hash.hpp"
#include "base/table.hpp"
#include "command.hpp"
#include "data/token_file.hpp"
#include "hdf5/hdf5.hpp"
#include "train/initial_model.hpp"
#include "train/kept_tokenizer.hpp"

namespace lockstep::commands {
namespace {

struct Options {
    data::PackOptions pack;
    std::string format = "text";
};

// One record: rows of name and value for text and markdown; one object or line for JSON and CSV.
std::string print_record(const Table& record, TableFormat format) {
    if (format == TableFormat::csv) return record.print(format);
    if (format == TableFormat::json) {
        // The array's only row, indented two columns less.
        const std::string rows = record.print(format);
        std::string object = rows.substr(rows.find('{'), rows.rfind('}') + 1 - rows.find('{')) + "\n";
        for (auto at = object.find("\n  "); at != std::string::npos; at = object.find("\n  ", at + 1))
            object.erase(at + 1, 2);
        return object;
    }
    Table rows({{"quantity", "quantity"}, {"value", "value"}});
    for (std::size_t i = 0; i < record.columns().size(); ++i) {
        const Cell& cell = record.rows().front()[i];
        std::string value;
        if (const auto* whole = std::get_if<std::int64_t>(&cell))
            value = with_commas(*whole);
        else if (const auto* number = std::get_if<double>(&cell))
            value = fmt::format("{:.4f}", *number);
        else if (const auto* words = std::get_if<std::string>(&cell))
            value = *words;
        rows.add_row({record.columns()[i].title, value});
    }
    return rows.print(format);
}

namespace fs = std::filesystem;

// The tokenizer kept in a checkpoint, or in the newest of a run's folder; null: `name` is none of these.
std::shared_ptr<const data::Tokenizer> tokenizer_of_checkpoint(const std::string& name) {
    std::error_code problem;
    const fs::path path = name;
    const bool of_tokenizer =
        fs::exists(path / "tokenizer.json", problem) || fs::exists(path / data::sentencepiece_file_name, problem);
    const bool folder = fs::is_directory(path, problem);
    if (folder ? of_tokenizer : !fs::is_regular_file(path, problem)) return nullptr;
    if (!folder && (!hdf5::has_signature(name) || data::is_token_file(name))) return nullptr;
    const std::string checkpoint = train::newest_checkpoint(name);
    auto tokenizer = train::kept_tokenizer(checkpoint::read_contents(checkpoint));
    if (!tokenizer) throw usage_error("{} does not name its tokenizer; name another", checkpoint);
    return tokenizer;
}

int run(Options options, bool tokenizer_given) {
    const TableFormat format = table_format(options.format);
    if (tokenizer_given && options.pack.train_tokenizer != 0)
        throw usage_error("--tokenizer and --train-tokenizer exclude each other; give one");
    if (tokenizer_given) options.pack.kept_tokenizer = tokenizer_of_checkpoint(options.pack.tokenizer);
    const data::PackResult result = data::pack(options.pack);
    Table record({{"files", "text files"},
                  {"skipped_files", "files left out (empty or not text)"},
                  {"bytes", "bytes of text"},
                  {"tokens", "tokens"},
                  {"vocabulary", "vocabulary"},
                  {"byte_entropy", "entropy per byte, nats", 4},
                  {"conditional_entropy", "entropy per byte given the previous, nats", 4},
                  {"checksum", "checksum"},
                  {"out", "token file"}});
    record.add_row({result.files, result.skipped_files, result.bytes, result.tokens, result.vocabulary,
                    result.byte_entropy, result.conditional_entropy, hash_text(result.checksum), options.pack.out});
    const std::string text = print_record(record, format);
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
        throw fault_error("cannot print the result: {}", system_error_text());
    return 0;
}

}  // namespace

void add_pack(CLI::App& program, Action& action) {
    auto options = std::make_shared<Options>();
    CLI::App* command = program.add_subcommand("pack", "Turn text files and folders into a token file");
    command->footer(
        "A folder means all text files below it, in byte order of their paths; hidden files, empty files and "
        "files with a\n"
        "NUL byte in their first 64 KiB are skipped. Files are separated by one boundary token.\n"
        "Example: lockstep pack --out tokens.h5 --train-tokenizer 8000 books/ notes.txt");
    command->add_option("paths", options->pack.paths, "Text files and folders")->required()->type_name("PATH");
    command->add_option("--out", options->pack.out, "Token file to write (HDF5); replaces an existing one on success")
        ->required()
        ->type_name("FILE");
    CLI::Option* tokenizer =
        command
            ->add_option("--tokenizer", options->pack.tokenizer,
                         "\"bytes\" (the default), a sentencepiece .model file, a tokenizer.json, a "
                         "folder with either, or a token file or checkpoint, for its tokenizer")
            ->type_name("bytes|FILE");
    command
        ->add_option("--train-tokenizer", options->pack.train_tokenizer,
                     "First train a sentencepiece model of N pieces on the text; stored in the token file")
        ->type_name("N")
        ->check(CLI::PositiveNumber);
    command->add_option("--format", options->format, "text, markdown, csv or json")
        ->capture_default_str()
        ->type_name("FORMAT");
    command->callback([options, tokenizer, &action] {
        const bool given = tokenizer->count() > 0;
        action = [options, given] { return run(*options, given); };
    });
}

}  // namespace lockstep::commands
