// Run descriptions and settings of the command line. Parts: the TOML text, then each setting ("a.b=c").
#include "config/run_description.hpp"
#include "fuzz/harness.hpp"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    constexpr std::size_t most_settings = 4;
    std::vector<std::string> parts = fuzz::parts(fuzz::text_of(data, size), 1 + most_settings);
    const std::string toml = parts.front();
    parts.erase(parts.begin());
    std::erase_if(parts, [](const std::string& setting) { return setting.empty(); });
    fuzz::judge(size, [&] {
        const config::RunDescription read = config::parse_run_description(toml, "run.toml", parts);
        const std::string printed = config::to_toml(read);
        const config::RunDescription again = config::parse_run_description(printed, "printed", {});
        fuzz::require(config::to_toml(again) == printed, "what is printed reads back differently");
        fuzz::require(config::differences(read, again, "").empty(), "what is printed is another description");
        config::check(read);
    });
    fuzz::judge(size, [&] { config::to_toml(config::parse_foreign_description(toml, "a checkpoint")); });
    const std::string path = fuzz::write_file("run.toml", toml);
    fuzz::judge(size, [&] {
        const auto other_model = [](const config::RunDescription&) { return config::ModelDescription(); };
        const config::RunDescription read = config::read_run_description(path, parts, other_model);
        config::check(read);
        for (const std::string& place : {config::run_folder(read), config::checkpoint_folder(read)})
            fuzz::require(place.ends_with("/" + read.run.name), "a run's folder has another name");
        static_cast<void>(config::local_folder(read));
    });
    return 0;
}
