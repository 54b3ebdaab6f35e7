#include "data/pack.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/hash.hpp"
#include "base/table.hpp"
#include "command.hpp"

namespace lockstep::commands {
namespace {

struct Options {
    data::PackOptions pack;
    std::string format = "text";
};

// The one record as rows of name and value for people; for programs as an object or a line of its own.
std::string print_record(const Table& record, TableFormat format) {
    if (format == TableFormat::csv) return record.print(format);
    if (format == TableFormat::json) {
        // The only row of an array, its lines two columns to the left.
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

int run(const Options& options, bool tokenizer_given) {
    const TableFormat format = table_format(options.format);
    if (tokenizer_given && options.pack.train_tokenizer != 0)
        throw usage_error("--tokenizer and --train-tokenizer exclude each other: give one");
    const data::PackResult result = data::pack(options.pack);
    Table record({{"files", "text files"},
                  {"skipped_files", "files left out (empty or not text)"},
                  {"bytes", "bytes of text"},
                  {"tokens", "tokens"},
                  {"vocabulary", "vocabulary"},
                  {"byte_entropy", "entropy of a byte, nats", 4},
                  {"conditional_entropy", "entropy of a byte given the one before, nats", 4},
                  {"checksum", "checksum"},
                  {"out", "token file"}});
    record.add_row({result.files, result.skipped_files, result.bytes, result.tokens, result.vocabulary,
                    result.byte_entropy, result.conditional_entropy, hash_text(result.checksum), options.pack.out});
    const std::string text = print_record(record, format);
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
        throw fault_error("the result cannot be printed: {}", system_error_text());
    return 0;
}

}  // namespace

void add_pack(CLI::App& program, Action& action) {
    auto options = std::make_shared<Options>();
    CLI::App* command = program.add_subcommand("pack", "Turn text files and folders into a token file");
    command->footer(
        "A folder stands for all text files below it, in byte order of their paths; hidden files, empty files and "
        "files with a\n"
        "NUL byte in their first 64 KiB are left out. One boundary token stands between files.\n"
        "Example: lockstep pack --out tokens.h5 --train-tokenizer 8000 books/ notes.txt");
    command->add_option("paths", options->pack.paths, "Text files and folders")->required()->type_name("PATH");
    command
        ->add_option("--out", options->pack.out,
                     "The token file to write (HDF5); an older one is replaced when all is done")
        ->required()
        ->type_name("FILE");
    CLI::Option* tokenizer = command
                                 ->add_option("--tokenizer", options->pack.tokenizer,
                                              "\"bytes\" (the default) or a sentencepiece .model file")
                                 ->type_name("bytes|FILE.model");
    command
        ->add_option("--train-tokenizer", options->pack.train_tokenizer,
                     "First make a sentencepiece model of N pieces from the text; it is kept in the token file")
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
