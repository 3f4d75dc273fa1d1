#include <chrono>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <dynapipe/batch/order.hpp>
#include <dynapipe/batch/overlong.hpp>
#include <dynapipe/cost/analytic.hpp>
#include <dynapipe/dynapipe.hpp>
#include <dynapipe/ext/csv.hpp>
#include <dynapipe/ext/files.hpp>
#include <dynapipe/ext/global_batch.hpp>
#include <dynapipe/ext/json.hpp>
#include <dynapipe/ext/report.hpp>
#include <dynapipe/ext/trace.hpp>
#include <dynapipe/plan/varlen.hpp>

#include "arguments.hpp"
#include "commands.hpp"
#include "costs.hpp"

namespace command {

namespace {

namespace fs = std::filesystem;

struct plan_arguments {
  std::string lengths;
  std::string model;
  std::string cluster;
  cost_arguments costs;
  std::optional<std::int64_t> batch_tokens;
  std::optional<std::int64_t> batch_samples;
  std::int64_t batch = 0;
  bool all = false;
  std::uint64_t seed = 0;
  std::optional<std::string> memory_limit;
  dynapipe::batch_layout layout = dynapipe::batch_layout::padded;
  std::int64_t max_length = 0;  ///< 0: none is over-long
  dynapipe::overlong_policy overlong = dynapipe::overlong_policy::error;
  std::string out;
  std::string trace;
  std::string draw;
  std::string summary = "text";
  dynapipe::planner_options options;
};

/// Draws a bar on a terminal, nothing elsewhere.
class progress_bar {
 public:
  explicit progress_bar(std::size_t total) : total_{total}, shown_{isatty(STDERR_FILENO) != 0 && total > 1} {}
  progress_bar(const progress_bar&) = delete;
  progress_bar& operator=(const progress_bar&) = delete;
  ~progress_bar() {
    if (open_) std::cerr << '\n';
  }
  void at(std::size_t done) {
    if (!shown_) return;
    const std::size_t filled = 40 * done / total_;
    std::cerr << fmt::format("\rplanning [{:<40}] {}/{}", std::string(filled, '#'), done, total_) << std::flush;
    open_ = true;
  }

 private:
  std::size_t total_;
  bool shown_;
  bool open_ = false;
};

std::string summary_json(const dynapipe::plan_summary& s, dynapipe::nanoseconds planning, std::size_t batch) {
  std::string peaks;
  for (const dynapipe::bytes peak : s.peak)
    peaks += (peaks.empty() ? "" : ", ") + std::to_string(peak.value());
  return fmt::format(
      "{{\"batch\": {}, \"predicted_ns\": {}, \"sync_ns\": {}, \"lower_bound_ns\": {}, \"planning_ns\": {}, "
      "\"micro_batches\": {}, \"samples\": {}, \"real_tokens\": {}, \"padded_tokens\": {}, \"peak_bytes\": [{}], "
      "\"bubble\": {:.6f}}}\n",
      batch, s.predicted.value(), s.sync.value(), s.lower_bound.value(), planning.value(), s.micro_batches, s.samples,
      s.real_tokens, s.padded_tokens, peaks, s.bubble);
}

/// Plans batches of one file, and writes what was asked for.
class plan_run {
 public:
  explicit plan_run(const plan_arguments& arguments)
      : arguments_{arguments},
        model_{model_of(arguments.model)},
        costs_{choose_costs(arguments.costs, model_, cluster_of(arguments.cluster), arguments.options)},
        planner_{model_, costs_.cluster, costs_.cost, arguments.options},
        table_{dynapipe::read_lengths(arguments.lengths)} {
    const std::vector<std::int64_t> order = dynapipe::shuffled(table_.rows.size(), arguments.seed);
    batches_ = dynapipe::cut_batches(table_.rows, order, {arguments.batch_tokens, arguments.batch_samples});
  }

  void one() {
    if (arguments_.batch < 0 || static_cast<std::size_t>(arguments_.batch) >= batches_.size())
      throw dynapipe::error{fmt::format("--batch {}: {} has the batches 0..{}", arguments_.batch, arguments_.lengths,
                                        batches_.size() - 1)};
    plan_batch(static_cast<std::size_t>(arguments_.batch), arguments_.out);
  }

  void every() {
    if (arguments_.out.empty()) throw dynapipe::error{"--all needs --out DIR"};
    fs::create_directories(arguments_.out);
    progress_bar bar{batches_.size()};
    for (std::size_t k = 0; k < batches_.size(); ++k) {
      try {
        plan_batch(k, (fs::path{arguments_.out} / fmt::format("batch_{:05}.json", k)).string());
      } catch (const dynapipe::error& problem) {
        throw dynapipe::error{fmt::format("batch {}: {}", k, problem.what())};
      }
      bar.at(k + 1);
    }
  }

 private:
  void plan_batch(std::size_t k, const std::string& out) {
    std::vector<dynapipe::sample> samples;
    for (const std::int64_t row : batches_[k]) {
      const dynapipe::length_row& lengths = table_.rows[static_cast<std::size_t>(row)];
      samples.push_back({lengths.input, lengths.target});
    }
    const auto begin = std::chrono::steady_clock::now();
    auto [batch, touched] = shortened(planner_.read(samples, batches_[k]));
    if (model_.encoder_decoder())
      for (dynapipe::named_order& order :
           dynapipe::candidate_orders(batch.lengths, true, {.shapes = arguments_.options.shapes}))
        batch.orders.push_back(std::move(order.ids));
    dynapipe::plan p =
        arguments_.layout == dynapipe::batch_layout::varlen ? dynapipe::plan_varlen(planner_, batch) : planner_(batch);
    const auto end = std::chrono::steady_clock::now();
    const dynapipe::nanoseconds planning{std::chrono::duration_cast<std::chrono::nanoseconds>(end - begin).count()};
    describe_source(p, k);
    describe_policy(p, touched);

    std::list<dynapipe::staged_file> files;
    if (!out.empty()) files.emplace_back(out, dynapipe::to_json_text(p));
    if (!arguments_.trace.empty()) files.emplace_back(arguments_.trace, dynapipe::chrome_trace(p));
    if (!arguments_.draw.empty()) files.emplace_back(arguments_.draw, dynapipe::timeline_svg(p));
    for (dynapipe::staged_file& file : files)
      file.commit();
    const dynapipe::plan_summary summary = dynapipe::summarize(p);
    if (arguments_.summary == "json") {
      std::cout << summary_json(summary, planning, k);
      return;
    }
    std::cout << fmt::format("{:<16} {} of {}\n", "batch", k, batches_.size())
              << dynapipe::summary_text(summary, planning);
    if (arguments_.all) return;
    std::cout << "\nreplica 0, forwards in lower case, backwards in upper case, a letter for each micro-batch:\n"
              << dynapipe::timeline_text(p, dynapipe::replica_id{0});
  }

  /// The samples after the policy for over-long ones, and what it did.
  [[nodiscard]] std::pair<dynapipe::batch_samples, dynapipe::overlong_counts> shortened(
      dynapipe::batch_samples batch) const {
    const dynapipe::shape_options& shapes = arguments_.options.shapes;
    if (arguments_.max_length == 0) return {std::move(batch), {}};
    const dynapipe::overlong_result applied =
        dynapipe::apply_overlong(batch.lengths, shapes, arguments_.overlong, arguments_.max_length);
    return {dynapipe::with_policy(batch, applied), applied.counts};
  }

  /// What the plan's provenance, and the person, should know of samples that were touched.
  void describe_policy(dynapipe::plan& p, const dynapipe::overlong_counts& touched) const {
    if (arguments_.max_length == 0) return;
    const auto add = [&](const char* name, std::string value) {
      p.provenance.options.emplace_back(name, std::move(value));
    };
    add("max_length", std::to_string(arguments_.max_length));
    add("overlong", std::string{to_string(arguments_.overlong)});
    if (touched.over_long == 0) return;
    const std::string what = fmt::format(
        "{} over-long samples: {} alone, {} dropped, {} truncated, {} split into {} pieces; {} tokens lost, {} of them "
        "loss tokens",
        touched.over_long, touched.alone, touched.dropped, touched.truncated, touched.split, touched.pieces,
        touched.tokens_lost, touched.loss_tokens_lost);
    add("overlong_samples", what);
    if (arguments_.summary == "text") std::cout << what << '\n';
  }

  void describe_source(dynapipe::plan& p, std::size_t k) const {
    const auto add = [&](const char* name, std::string value) {
      p.provenance.options.emplace_back(name, std::move(value));
    };
    add("lengths", fs::path{arguments_.lengths}.filename().string());
    add("seed", std::to_string(arguments_.seed));
    add("batch", std::to_string(k));
    if (arguments_.batch_tokens) add("batch_tokens", std::to_string(*arguments_.batch_tokens));
    if (arguments_.batch_samples) add("batch_samples", std::to_string(*arguments_.batch_samples));
    for (const auto& [name, value] : costs_.provenance)
      add(name.c_str(), value);
  }

  const plan_arguments& arguments_;
  dynapipe::model_spec model_;
  chosen_costs costs_;
  dynapipe::planner<any_cost> planner_;
  dynapipe::lengths_table table_;
  std::vector<std::vector<std::int64_t>> batches_;
};

}  // namespace

void add_plan(CLI::App& app, int&) {
  CLI::App* plan = app.add_subcommand("plan", "Plan a global batch of a lengths file");
  const auto arguments = std::make_shared<plan_arguments>();
  plan_arguments& a = *arguments;
  plan->add_option("--lengths", a.lengths, "CSV of task,input_tokens,target_tokens, plain or gzipped")->required();
  plan->add_option("--model", a.model, "Model preset, or a JSON file")->required();
  plan->add_option("--cluster", a.cluster, "Cluster preset, or a JSON file")->required();
  add_costs(*plan, a.costs, a.options);
  add_number(*plan, "--pp", a.options.pipeline, "Pipeline devices of one replica (default 1)");
  add_number(*plan, "--dp", a.options.data, "Data-parallel replicas (default 1)");
  add_number(*plan, "--stages-per-device", a.options.stages_per_device, "Stages on each device (default 1)");
  add_word(*plan, "--placement", a.options.placement, dynapipe::placement_names, "Where stages lie");
  add_word(*plan, "--queues", a.options.queues, dynapipe::queue_style_names, "How a device's transfers queue");
  add_word(*plan, "--schedule", a.options.schedule, dynapipe::schedule_names, "Pipeline schedule");
  add_word(*plan, "--recompute", a.options.recompute, dynapipe::recompute_names, "Activation recomputation");
  auto* tokens = add_number(*plan, "--batch-tokens", a.batch_tokens, "Tokens of a global batch (default 65536)");
  add_number(*plan, "--batch-samples", a.batch_samples, "Samples of a global batch")->excludes(tokens);
  auto* batch = add_number(*plan, "--batch", a.batch, "Which global batch, from 0 (default 0)");
  auto* all = plan->add_flag("--all", a.all, "Plan every global batch, into the directory --out")->excludes(batch);
  add_number(*plan, "--seed", a.seed, "Seed of the shuffle (default 0)");
  add_word(*plan, "--layout", a.layout, dynapipe::batch_layout_names, "Layout of micro-batches");
  add_number(*plan, "--max-length", a.max_length, "Longest sample in tokens (default: what fits the memory)");
  add_word(*plan, "--overlong", a.overlong, dynapipe::overlong_policy_names, "What becomes of longer samples");
  plan->add_option("--memory-limit", a.memory_limit, "Memory of a device, such as 36000MB or 40GiB");
  plan->add_option("--out", a.out, "Plan file, or directory with --all");
  plan->add_option("--trace", a.trace, "Chrome trace file, for ui.perfetto.dev")->excludes(all);
  plan->add_option("--draw", a.draw, "SVG drawing of the timeline")->excludes(all);
  add_summary(*plan, a.summary);
  plan->callback([arguments] {
    plan_arguments& given = *arguments;
    if (!given.batch_tokens && !given.batch_samples) given.batch_tokens = 65'536;
    if (given.memory_limit) given.options.memory_limit = parse_bytes("--memory-limit", *given.memory_limit);
    plan_run run{given};
    given.all ? run.every() : run.one();
  });
}

}  // namespace command
