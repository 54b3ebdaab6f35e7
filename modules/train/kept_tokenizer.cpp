#include "train/kept_tokenizer.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/log.hpp"
#include "cluster/agree.hpp"
#include "data/dataset.hpp"
#include "train/initial_model.hpp"

namespace lockstep::train {
namespace {

constexpr const char* chosen_by_itself = "auto";  // as data.tokenizer

bool has_plain_text(const config::DataSection& data) {
    return data::has_plain_text(data.train) || data::has_plain_text(data.validation) ||
           std::any_of(data.mixture.begin(), data.mixture.end(),
                       [](const config::WeightedPaths& part) { return data::has_plain_text(part.paths); });
}

std::string where_it_is_kept(const config::RunDescription& run) {
    std::vector<std::string> own = checkpoint::list_checkpoints(config::checkpoint_folder(run));
    for (; !own.empty(); own.pop_back()) try {
            // A run that is trained on tokens alone keeps none, and may yet be validated on text.
            if (!checkpoint::read_contents(own.back()).tokenizer_kind.empty()) return own.back();
            break;
        } catch (const Error&) {
            // A damaged one is not resumed either.
        }
    return newest_checkpoint(run.init.from);
}

}  // namespace

std::unique_ptr<data::Tokenizer> kept_tokenizer(const checkpoint::Contents& contents, const std::string& path,
                                                std::string_view remedy) {
    if (contents.tokenizer_kind.empty())
        throw usage_error(
            "{} does not name its tokenizer (it was trained on .bin token files, or its folder has neither "
            "tokenizer.json nor tokenizer.model){}",
            path, remedy);
    return data::make_tokenizer(contents.tokenizer_kind, contents.tokenizer_files);
}

std::shared_ptr<const data::Tokenizer> automatic_tokenizer(const config::RunDescription& run,
                                                           cluster::HostGroup& group) {
    if (run.data.tokenizer != chosen_by_itself) return nullptr;
    std::string path;  // "": bytes
    cluster::on_root(group, [&] {
        if (!run.init.from.empty() && has_plain_text(run.data)) path = where_it_is_kept(run);
    });
    path = group.broadcast_text(path, 0);
    if (path.empty()) return data::make_tokenizer("bytes", {});
    std::shared_ptr<const data::Tokenizer> tokenizer;
    cluster::together(group,
                      [&] { tokenizer = kept_tokenizer(read_model_contents(path), path, "; set data.tokenizer"); });
    log::info("plain text is read with the tokenizer of {}", path);
    return tokenizer;
}

}  // namespace lockstep::train
