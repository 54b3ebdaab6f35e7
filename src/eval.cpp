// lockstep eval: validation loss and perplexity of a checkpoint or a Hugging Face folder
#include <bit>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "base/command_line.hpp"
#include "base/progress_line.hpp"
#include "base/table.hpp"
#include "cluster/agree.hpp"
#include "cluster/session.hpp"
#include "command.hpp"
#include "data/dataset.hpp"
#include "layout/devices.hpp"
#include "model/mixers/registry.hpp"
#include "train/evaluation.hpp"
#include "train/kept_tokenizer.hpp"
#include "train/model_file.hpp"
#include "train/run_data.hpp"

namespace lockstep::commands {
namespace {

struct Options {
    std::string checkpoint, base, device = "auto", format = "text", jsonl_field = "text", documents;
    std::vector<std::string> data;
    std::int64_t length = 0, micro = 0, windows = 0;
    bool by_position = false, ema = false;
};

// The mean losses of ranges of positions, two to an octave: 1, 2, 3, 4–5, 6–7, 8–11 …; position p follows p tokens.
// What is left at the end, if less than half a range, belongs to the last one.
Table table_by_position(const train::LossesByPosition& losses) {
    Table table({{"first_position", "from position"},
                 {"last_position", "to"},
                 {"validation_loss", "validation loss, nats", 5},
                 {"perplexity", "perplexity", 3}});
    const auto length = static_cast<std::int64_t>(losses.sums.size());
    const auto size_of_range = [](std::int64_t first) {
        return std::max<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(first)) / 2, 1);
    };
    for (std::int64_t first = 1; first <= length;) {
        std::int64_t last = first + size_of_range(first) - 1;
        if (2 * (length - last) < size_of_range(last + 1)) last = length;
        const auto sum_of = [&](const std::vector<double>& values) {
            return std::accumulate(values.begin() + first - 1, values.begin() + last, 0.0);
        };
        const double targets = sum_of(losses.targets), loss = sum_of(losses.sums) / targets;
        table.add_row({first, last, targets > 0 ? Cell(loss) : Cell(), targets > 0 ? Cell(std::exp(loss)) : Cell()});
        first = last + 1;
    }
    return table;
}

std::string result_text(const Table& whole, const Table& positions, TableFormat format) {
    if (positions.rows().empty()) return format == TableFormat::json ? whole.print_object() : whole.print(format);
    if (format == TableFormat::csv) return positions.print(format);
    if (format != TableFormat::json) return whole.print(format) + "\n" + positions.print(format);
    auto object = nlohmann::ordered_json::parse(whole.print_object());
    object["positions"] = nlohmann::ordered_json::parse(positions.print(format));
    return object.dump(2) + "\n";
}

data::DatasetOptions dataset_options(const Options& options, const train::ModelFile& file) {
    data::DatasetOptions dataset;
    dataset.paths = options.data;
    dataset.length = options.length > 0 ? options.length : file.description.batch.length;
    dataset.random = false;
    dataset.key = "--data";
    // Token files need none.
    if (data::has_plain_text(options.data))
        dataset.kept_tokenizer =
            train::kept_tokenizer(file.contents, file.path, ", so it cannot read text; name token files");
    dataset.jsonl_field = options.jsonl_field;
    dataset.separate_documents = file.description.data.separates_documents();
    dataset.document_alignment = model::document_alignment(file.description.model);
    return dataset;
}

int run(const Options& options) {
    const TableFormat format = table_format(options.format);
    cluster::Session session(nullptr, nullptr);
    return session.run([&] {
        const auto group = session.make_world_group();
        const layout::Devices devices =
            layout::open_devices(config::from_word<config::DeviceChoice>(options.device, "--device"), session, true);
        kernels::Backend& backend = *devices.backend;
        train::ModelFile file = train::load_model(options.checkpoint, backend, *group, options.ema, options.base);
        if (!options.documents.empty())
            file.description.data.documents = config::from_word<config::DocumentMode>(options.documents, "--documents");
        const auto& model = file.description.model;
        const std::int64_t length = options.length > 0 ? options.length : file.description.batch.length;
        std::optional<data::Dataset> dataset;
        cluster::together(*group, [&] {
            if (file.description.data.separates_documents())
                if (const std::string why = model::why_documents_are_joined(
                        model, length, options.length > 0 ? "--length" : "the sequence length");
                    !why.empty())
                    throw usage_error("{}", why);
            dataset.emplace(dataset_options(options, file));
            if (dataset->vocabulary() > model.vocabulary)
                throw usage_error(
                    "the data has a vocabulary of {} tokens, the model's is {}; it was packed with another tokenizer",
                    dataset->vocabulary(), model.vocabulary);
            const std::string kind = dataset->tokenizer_kind(), &own = file.contents.tokenizer_kind;
            if (!kind.empty() && !own.empty() &&
                !data::same_tokenizer(kind, dataset->tokenizer_files(), own, file.contents.tokenizer_files))
                throw usage_error(
                    "the data was packed with a different {}tokenizer than the model's{}; pack it with the "
                    "model's",
                    kind == own ? own + " " : "", kind == own ? "" : " (" + own + ")");
        });
        train::check_same_on_all_ranks(*dataset, "--data", *group);
        if (model.position != config::Position::none && length > model.context)
            throw usage_error("--length {} exceeds the model's {} positions (model.context)", length, model.context);
        model::StageOptions stage_options;
        stage_options.range = model::whole_model(model);
        const std::int64_t micro = options.micro > 0 ? options.micro : std::max<std::int64_t>(1, 4096 / length);
        stage_options.shape = {std::min(micro, dataset->windows()), length};
        stage_options.training = false;
        stage_options.restarts_positions = file.description.restarts_positions();
        model::Stage stage(backend, *file.parameters, model, stage_options);
        stage.set_inner_rate_factor(train::inner_rate_factor(file));
        train::DocumentBatches apart;
        if (file.description.data.separates_documents()) apart = {length, 0, stage_options.restarts_positions};
        train::BatchTensors batch(backend.device(), stage_options.shape, apart);
        ProgressLine progress("evaluation");
        train::LossesByPosition losses;
        const train::Evaluation result = train::evaluate(backend, stage, batch, *dataset, options.windows, *group,
                                                         progress, options.by_position ? &losses : nullptr);
        Table table({{"checkpoint", "checkpoint"},
                     {"step", "step"},
                     {"tokens", "tokens"},
                     {"validation_loss", "validation loss, nats", 5},
                     {"perplexity", "perplexity", 3},
                     {"bits_per_byte", "bits per byte", 4}});
        table.add_row({options.ema ? file.path + " (averages)" : file.path, file.contents.state.step, result.tokens,
                       result.loss, std::exp(result.loss),
                       result.bits_per_byte > 0 ? Cell(result.bits_per_byte) : Cell()});
        const Table positions = table_by_position(losses);
        cluster::on_root(*group, [&] { print_result(result_text(table, positions, format)); });
        return 0;
    });
}

}  // namespace

void add_eval(CLI::App& program, Action& action) {
    auto* command =
        program.add_subcommand("eval", "Compute validation loss and perplexity of a checkpoint (also under mpirun)");
    const auto options = std::make_shared<Options>();
    command
        ->add_option("--checkpoint", options->checkpoint,
                     "Checkpoint file, a run's folder for its newest, or a Hugging Face folder")
        ->required();
    command->add_option("--base", options->base,
                        "Base model of a checkpoint that holds only adapters (default: the one it names)");
    command->add_flag("--ema", options->ema, "Evaluate the averages of optimizer.ema instead of the parameters");
    command->add_option("--data", options->data, "Token files, text files, JSON Lines or folders (repeatable)")
        ->required();
    command->add_option("--jsonl-field", options->jsonl_field, "JSON Lines field that holds the text");
    command->add_option("--device", options->device, "auto, cpu or cuda");
    command->add_option("--length", options->length, "Tokens per sequence (default: as trained)")->check(above_zero());
    command->add_option("--documents", options->documents,
                        "joined or separate: whether tokens see other documents in their window (default: as trained)");
    command->add_option("--micro", options->micro, "Sequences per forward pass (default: about 4096 tokens)")
        ->check(above_zero());
    command->add_option("--windows", options->windows, "Use only the first N windows of the data (default: all)")
        ->check(above_zero());
    command->add_flag("--by-position", options->by_position,
                      "Also report the loss by range of positions in the sequence (csv: only this)");
    command->add_option("--format", options->format, "text, markdown, csv or json");
    command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace lockstep::commands
