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

template <class Condition>
bool any_paths(const config::DataSection& data, Condition condition) {
    return condition(data.train) || condition(data.validation) ||
           std::any_of(data.mixture.begin(), data.mixture.end(),
                       [&](const config::WeightedPaths& part) { return condition(part.paths); });
}

bool has_plain_text(const config::DataSection& data) {
    return any_paths(data, [](const auto& paths) { return data::has_plain_text(paths); });
}

std::string where_it_is_kept(const config::RunDescription& run, bool of_text) {
    std::vector<std::string> own = checkpoint::list_checkpoints(config::checkpoint_folder(run));
    for (; !own.empty(); own.pop_back()) try {
            const bool kept = !checkpoint::read_contents(own.back()).tokenizer_kind.empty();
            if (kept || !of_text) return own.back();
            break;
        } catch (const Error& error) {
            if (error.code() != ExitCode::damaged) throw;  // a damaged one is not resumed either
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

std::shared_ptr<const data::Tokenizer> tokenizer_of_run(const config::RunDescription& run, cluster::HostGroup& group) {
    std::shared_ptr<const data::Tokenizer> tokenizer;
    if (!run.data.tokenizer_is_automatic()) {
        cluster::together(group, [&] { tokenizer = data::open_tokenizer(run.data.tokenizer); });
        return tokenizer;
    }
    if (run.init.from.empty()) return tokenizer;
    std::string path;   // "": the data name theirs
    bool text = false;  // rank 0 looks for all
    cluster::on_root(group, [&] {
        text = has_plain_text(run.data);
        const bool wanted = any_paths(run.data, [](const auto& paths) { return !data::names_all_tokenizers(paths); });
        if (wanted) path = where_it_is_kept(run, text);
    });
    path = group.broadcast_text(path, 0);
    text = group.all_maximum(text ? 1 : 0) != 0;
    if (path.empty()) return tokenizer;
    cluster::together(group, [&] {
        const checkpoint::Contents contents = exchange::StoredModel(path).contents();
        if (text || !contents.tokenizer_kind.empty())
            tokenizer = kept_tokenizer(contents, path, "; set data.tokenizer");
        if (text) log::info("plain text is read with the tokenizer of {}", path);
    });
    return tokenizer;
}

}  // namespace lockstep::train
