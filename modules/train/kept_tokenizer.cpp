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

// "": none is needed.
std::string where_it_is_kept(const config::RunDescription& run) {
    if (run.data.tokenizer != automatic_tokenizer || run.init.from.empty()) return "";
    const std::vector<config::WeightedPaths>& mixture = run.data.mixture;
    if (!data::has_plain_text(run.data.train) && !data::has_plain_text(run.data.validation) &&
        std::none_of(mixture.begin(), mixture.end(),
                     [](const config::WeightedPaths& part) { return data::has_plain_text(part.paths); }))
        return "";
    std::vector<std::string> own = checkpoint::list_checkpoints(config::checkpoint_folder(run));
    for (; !own.empty(); own.pop_back()) try {
            checkpoint::read_contents(own.back());
            return own.back();
        } catch (const Error&) {
            // A damaged one is not resumed either.
        }
    return newest_checkpoint(run.init.from);
}

}  // namespace

std::unique_ptr<data::Tokenizer> kept_tokenizer(const checkpoint::Contents& contents) {
    if (contents.tokenizer_kind.empty()) return nullptr;
    return data::make_tokenizer(contents.tokenizer_kind, contents.tokenizer_files);
}

std::shared_ptr<const data::Tokenizer> tokenizer_to_begin_with(const config::RunDescription& run,
                                                               cluster::HostGroup& group) {
    std::string path;
    cluster::on_root(group, [&] { path = where_it_is_kept(run); });
    path = group.broadcast_text(path, 0);
    if (path.empty()) return nullptr;
    std::shared_ptr<const data::Tokenizer> tokenizer;
    cluster::together(group, [&] { tokenizer = kept_tokenizer(read_model_contents(path)); });
    if (tokenizer) log::info("plain text is read with the tokenizer of {}", path);
    return tokenizer;
}

}  // namespace lockstep::train
