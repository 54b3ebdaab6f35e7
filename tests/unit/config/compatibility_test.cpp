// tests/compatibility/run-description.toml was written for an earlier version: what it means must not change.
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "config_test.hpp"
#include "places.hpp"

using namespace lockstep::config;

BOOST_AUTO_TEST_CASE(an_older_description_means_the_same) {
    const RunDescription run =
        read_run_description(lockstep::tests::source_path("tests/compatibility/run-description.toml"), {});
    check(run);
    BOOST_TEST(run.run.name == "kept");
    BOOST_TEST(run.run.folder == "old runs");
    BOOST_TEST(run.run.seed == 12345678901u);
    BOOST_TEST((run.run.device == DeviceChoice::cpu));
    BOOST_TEST((run.run.self_test == SelfTest::off));
    BOOST_TEST(!run.run.bind);
    BOOST_TEST(run.run.peak_tflops == 1.5);

    const ModelDescription& model = run.model;
    BOOST_TEST(model.preset == "ttt-mlp-125m");
    BOOST_TEST(model.mixer(0) == "ttt-mlp");
    BOOST_TEST(model.width == 768);  // of the preset, as
    BOOST_TEST(model.mlp_width == 2048);
    BOOST_TEST(model.layers == 3);
    BOOST_TEST(model.layer(0).heads == 6);
    BOOST_TEST(model.layer(0).kv_heads == 6);      // follows from heads
    BOOST_TEST(model.layer(0).head_width == 128);  // follows from width and heads
    BOOST_TEST(!model.qk_norm);                    // not known then
    BOOST_TEST(model.vocabulary == 300);
    BOOST_TEST(model.context == 64);
    BOOST_TEST((model.norm == NormKind::layer));
    BOOST_TEST(model.norm_epsilon == 1e-5);
    BOOST_TEST((model.mlp == MlpKind::gelu));
    BOOST_TEST((model.position == Position::learned));
    BOOST_TEST(model.rope_theta == 10000);
    BOOST_TEST((model.rope_scaling == RopeScaling::none));
    BOOST_TEST(model.rope_factor == 8);  // as were the constants then
    BOOST_TEST((model.bias == Bias::all));
    BOOST_TEST(!model.tied_head);
    BOOST_TEST((model.frozen == std::vector<std::string>{"embedding/*", "blocks/0/*"}));
    const Options ttt = model.options.at("ttt");
    BOOST_TEST(ttt.integer("mini_batch") == 8);
    BOOST_TEST(ttt.number("base_lr") == 0.2);
    BOOST_TEST(ttt.number("base_lr_warmup") == 0.01);
    BOOST_TEST(ttt.flag("gate"));
    BOOST_TEST(ttt.flag("share_qk"));
    BOOST_TEST(!ttt.flag("pre_conv"));

    BOOST_TEST((run.data.train == std::vector<std::string>{"a.h5", "folder"}));
    BOOST_TEST(run.data.validation.empty());
    BOOST_TEST(run.data.validation_fraction == 0.125);
    BOOST_TEST((run.data.order == DataOrder::sequential));
    BOOST_TEST(run.data.tokenizer == "byte \"pair\".model");
    BOOST_TEST(run.batch.global == 24);
    BOOST_TEST(run.batch.micro == 2);
    BOOST_TEST(run.batch.length == 32);
    BOOST_REQUIRE(run.batch.ramp.has_value());
    BOOST_TEST(run.batch.ramp->start == 8);
    BOOST_TEST(run.batch.ramp->increment == 4);
    BOOST_TEST(run.batch.ramp->samples == 1000);

    BOOST_TEST(run.optimizer.kind == "adamw");  // the only one when it was written
    BOOST_TEST(run.optimizer.beta1 == 0.8);
    BOOST_TEST(run.optimizer.beta2 == 0.99);
    BOOST_TEST(run.optimizer.epsilon == 1e-9);
    BOOST_TEST(run.optimizer.weight_decay == 0);
    BOOST_TEST((run.optimizer.decay == Decay::matrices));
    BOOST_TEST(run.optimizer.clip == 0.5);
    BOOST_TEST(run.optimizer.skip_limit == 3);
    BOOST_TEST((run.schedule.kind == ScheduleKind::wsd));
    BOOST_TEST(run.schedule.steps == 1000);
    BOOST_TEST(run.schedule.epochs == 0);
    BOOST_TEST(run.schedule.warmup == 10);
    BOOST_TEST(run.schedule.peak_lr == 6e-4);
    BOOST_TEST(run.schedule.final_lr == 6e-5);
    BOOST_TEST(run.schedule.decay_steps == 100);
    BOOST_TEST((run.precision.compute == Precision::fp16));
    BOOST_TEST(run.precision.loss_scale.initial == 1024);
    BOOST_TEST(run.precision.loss_scale.growth_interval == 50);
    BOOST_TEST(run.precision.loss_scale.hysteresis == 1);
    BOOST_TEST(run.precision.loss_scale.minimum == 0.5);

    BOOST_TEST(run.parallel.data == 0);
    BOOST_TEST(run.parallel.tensor == 2);
    BOOST_TEST(run.parallel.pipeline == 3);
    BOOST_TEST(run.parallel.context == 1);
    BOOST_TEST(run.parallel.interleave == 1);
    BOOST_TEST(run.parallel.zero == 1);
    BOOST_TEST(run.parallel.sequence);
    BOOST_TEST(run.parallel.bucket_bytes == 65536);
    BOOST_TEST((run.parallel.recompute == Recompute::selective));
    BOOST_TEST(run.checkpoint.every == 50);
    BOOST_TEST(run.checkpoint.every_minutes == 30);
    BOOST_TEST(run.checkpoint.keep == 5);
    BOOST_TEST(run.checkpoint.folder == "old checkpoints");
    BOOST_TEST(run.validation.every == 25);
    BOOST_TEST(run.validation.batches == 4);
    BOOST_TEST((run.trace.detail == TraceDetail::layer));
    BOOST_TEST(run.watchdog.seconds == 60);
    BOOST_TEST(run.watchdog.first_step_seconds == 0);
    BOOST_TEST((run.sync.mode == SyncMode::bounded));
}

// A description of a run folder has a whole model, and asks for no checkpoint to begin with; so has one that was
// written when some keys were not known.
BOOST_AUTO_TEST_CASE(an_older_descriptions_model_is_whole) {
    const ModelSource never = [](const RunDescription&) -> ModelDescription {
        throw std::runtime_error("the model was asked for");
    };
    std::istringstream resolved(to_toml(parse_run_description(small_run(), "run.toml", {"init.from=gone.h5"})));
    std::string older;
    int left_out = 0;
    for (std::string line; std::getline(resolved, line);) {
        bool later = false;
        for (const char* key : {"head_width", "qk_norm", "rope_factor", "rope_low", "rope_high",
                                "rope_original_context", "window", "score_cap", "logit_cap"})
            later = later || line.rfind(std::string(key) + " = ", 0) == 0;
        left_out += later ? 1 : 0;
        if (!later) older += line + "\n";
    }
    BOOST_TEST(left_out == 9);
    const std::string path = lockstep::tests::build_path("older_description.toml");
    std::ofstream(path) << older;
    BOOST_TEST(read_run_description(path, {}, never).model.width == 64);
    BOOST_CHECK_THROW(read_run_description("", {"init.from=gone.h5", "model.width=64"}, never), std::runtime_error);
}
