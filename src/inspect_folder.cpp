#include "inspect_folder.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/format.hpp"
#include "command.hpp"
#include "config/run_description.hpp"
#include "exchange/folder.hpp"
#include "model/parameter_description.hpp"

namespace lockstep::commands {

int inspect_folder(const std::string& path, TableFormat format) {
    const exchange::Folder folder(path);
    exchange::warn_of_unknown_keys(folder);
    const checkpoint::Contents contents = folder.contents();
    const std::int64_t parameters = model::parameter_count(folder.model());
    Table table(
        {{"name", "tensor"}, {"parameter", "parameter"}, {"shape", "shape"}, {"type", "type"}, {"file", "file"}});
    auto tensors = nlohmann::ordered_json::array();
    for (const exchange::Correspondence& names : folder.names()) {
        const exchange::TensorFiles::Place& place = folder.place(names);
        const std::string file = place.file->path().substr(folder.path().size() + 1);
        table.add_row({names.theirs, names.ours, shape_text(names.shape), place.tensor->type, file});
        tensors.push_back({{"name", names.theirs},
                           {"parameter", names.ours},
                           {"shape", names.shape},
                           {"type", place.tensor->type},
                           {"file", file}});
    }
    if (format == TableFormat::json) {
        auto files = nlohmann::ordered_json::array();
        for (const auto& file : contents.tokenizer_files) files.push_back(file.name);
        const nlohmann::ordered_json json = {{"folder", folder.path()},
                                             {"architecture", folder.architecture().name},
                                             {"description", contents.run_description},
                                             {"parameters", parameters},
                                             {"tokenizer", contents.tokenizer_kind},
                                             {"tokenizer_files", files},
                                             {"tensors", tensors}};
        print_result("{}\n", json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
        return 0;
    }
    if (format != TableFormat::csv) {
        config::RunDescription description;
        description.model = folder.model();
        print_result("{}: a {}, tokenizer {}\n\n{}\n", folder.path(), folder.architecture().name,
                     contents.tokenizer_kind.empty() ? "unknown" : contents.tokenizer_kind,
                     config::to_toml(description, "model"));
    }
    print_result(table.print(format));
    if (format == TableFormat::csv) return 0;
    print_result("\n{} parameters in {}\n", with_commas(parameters),
                 human_bytes(static_cast<double>(folder.files().bytes())));
    return 0;
}

}  // namespace lockstep::commands
