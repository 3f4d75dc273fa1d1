#include <charconv>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>

#include <dynapipe/cost/analytic.hpp>
#include <dynapipe/dynapipe.hpp>
#include <dynapipe/ext/csv.hpp>
#include <dynapipe/ext/files.hpp>
#include <dynapipe/ext/global_batch.hpp>
#include <dynapipe/ext/json.hpp>
#include <dynapipe/ext/report.hpp>
#include <dynapipe/ext/trace.hpp>

#include "commands.hpp"

namespace command {

namespace {

namespace fs = std::filesystem;

struct plan_arguments {
  std::string lengths;
  std::string model;
  std::string cluster;
  std::optional<std::int64_t> batch_tokens;
  std::optional<std::int64_t> batch_samples;
  std::int64_t batch = 0;
  bool all = false;
  std::uint64_t seed = 0;
  std::optional<std::string> memory_limit;
  std::string out;
  std::string trace;
  std::string draw;
  std::string summary = "text";
  dynapipe::planner_options options;
};

/// Bytes from text such as 36000MB (10^6) or 40GiB (2^30).
dynapipe::bytes parse_bytes(const std::string& text) {
  static constexpr std::pair<const char*, std::int64_t> suffixes[] = {{"", 1},
                                                                      {"B", 1},
                                                                      {"KB", 1'000},
                                                                      {"MB", 1'000'000},
                                                                      {"GB", 1'000'000'000},
                                                                      {"KiB", 1LL << 10},
                                                                      {"MiB", 1LL << 20},
                                                                      {"GiB", 1LL << 30},
                                                                      {"TB", 1'000'000'000'000},
                                                                      {"TiB", 1LL << 40}};
  const std::size_t digits = text.find_first_not_of("0123456789");
  const std::string suffix = digits == std::string::npos ? "" : text.substr(digits);
  for (const auto& [name, scale] : suffixes) {
    if (suffix != name || digits == 0 || text.empty() || text.size() - suffix.size() > 18) continue;
    const std::int64_t value = dynapipe::saturating_mul(std::stoll(text), scale);
    if (value > 0) return dynapipe::bytes{value};
  }
  throw dynapipe::error{"--memory-limit '" + text + "' is no positive size (examples: 36000MB, 40GiB, 42949672960)"};
}

/// A preset by name, or a file.
template <class Spec, class Presets, class Load>
Spec preset_or_file(const std::string& text, const char* what, const Presets& presets, Load load) {
  std::string known;
  for (const Spec& preset : presets) {
    if (preset.name == text) return preset;
    known += (known.empty() ? "" : ", ") + preset.name;
  }
  if (fs::exists(text)) return load(text);
  throw dynapipe::error{std::string{"unknown "} + what + " '" + text + "': neither a preset (" + known +
                        ") nor a file"};
}

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
        model_{preset_or_file<dynapipe::model_spec>(arguments.model, "model", dynapipe::presets::models(),
                                                    [](const auto& f) { return dynapipe::load_model(f); })},
        cluster_{preset_or_file<dynapipe::cluster_spec>(arguments.cluster, "cluster", dynapipe::presets::clusters(),
                                                        [](const auto& f) { return dynapipe::load_cluster(f); })},
        planner_{model_, cluster_,
                 dynapipe::analytic_cost{model_, cluster_, {.tensor_parallel = arguments.options.tensor}},
                 arguments.options},
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
    dynapipe::plan p = planner_(samples, batches_[k]);
    const auto end = std::chrono::steady_clock::now();
    const dynapipe::nanoseconds planning{std::chrono::duration_cast<std::chrono::nanoseconds>(end - begin).count()};
    describe_source(p, k);

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

  void describe_source(dynapipe::plan& p, std::size_t k) const {
    const auto add = [&](const char* name, std::string value) {
      p.provenance.options.emplace_back(name, std::move(value));
    };
    add("lengths", fs::path{arguments_.lengths}.filename().string());
    add("seed", std::to_string(arguments_.seed));
    add("batch", std::to_string(k));
    if (arguments_.batch_tokens) add("batch_tokens", std::to_string(*arguments_.batch_tokens));
    if (arguments_.batch_samples) add("batch_samples", std::to_string(*arguments_.batch_samples));
  }

  const plan_arguments& arguments_;
  dynapipe::model_spec model_;
  dynapipe::cluster_spec cluster_;
  dynapipe::planner<dynapipe::analytic_cost> planner_;
  dynapipe::lengths_table table_;
  std::vector<std::vector<std::int64_t>> batches_;
};

template <class Number>
struct number_of {
  using type = Number;
};
template <class Number>
struct number_of<std::optional<Number>> {
  using type = Number;
};

/// An option of one whole number; unlike the library's own reading it takes no blanks, signs that overflow, or nothing.
template <class Number>
CLI::Option* add_number(CLI::App& app, const char* name, Number& value, const std::string& help) {
  return app
      .add_option_function<std::string>(
          name,
          [&value, name](const std::string& text) {
            typename number_of<Number>::type read = 0;
            const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), read);
            if (text.empty() || end != text.data() + text.size() || problem != std::errc{})
              throw CLI::ValidationError{name, "'" + text + "' is no whole number in range"};
            value = read;
          },
          help)
      ->type_name("N");
}

template <class Enum, std::size_t N>
CLI::Option* add_word(CLI::App& app, const char* name, Enum& value, const dynapipe::name_table<Enum, N>& table,
                      const char* help) {
  std::string words;
  for (const auto& [key, word] : table)
    words += (words.empty() ? "" : "|") + std::string{word};
  return app
      .add_option_function<std::string>(
          name,
          [&value, &table, name, words](const std::string& text) {
            const std::optional<Enum> found = dynapipe::value_in(table, text);
            if (!found) throw CLI::ValidationError{name, "'" + text + "' is none of " + words};
            value = *found;
          },
          help)
      ->type_name(words);
}

}  // namespace

void add_plan(CLI::App& app, int&) {
  CLI::App* plan = app.add_subcommand("plan", "Plan a global batch of a lengths file");
  const auto arguments = std::make_shared<plan_arguments>();
  plan_arguments& a = *arguments;
  plan->add_option("--lengths", a.lengths, "CSV of task,input_tokens,target_tokens, plain or gzipped")->required();
  plan->add_option("--model", a.model, "Model preset, or a JSON file")->required();
  plan->add_option("--cluster", a.cluster, "Cluster preset, or a JSON file")->required();
  add_number(*plan, "--pp", a.options.pipeline, "Pipeline devices of one replica (default 1)");
  add_number(*plan, "--dp", a.options.data, "Data-parallel replicas (default 1)");
  add_number(*plan, "--tp", a.options.tensor, "Tensor-parallel ranks of each device (default 1)");
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
  plan->add_option("--layout", "Layout of micro-batches")->check(CLI::IsMember({"padded"}))->type_name("padded");
  plan->add_option("--memory-limit", a.memory_limit, "Memory of a device, such as 36000MB or 40GiB");
  plan->add_option("--out", a.out, "Plan file, or directory with --all");
  plan->add_option("--trace", a.trace, "Chrome trace file, for ui.perfetto.dev")->excludes(all);
  plan->add_option("--draw", a.draw, "SVG drawing of the timeline")->excludes(all);
  plan->add_option("--summary", a.summary, "How to print the summary")
      ->check(CLI::IsMember({"text", "json"}))
      ->type_name("text|json")
      ->capture_default_str();
  plan->callback([arguments] {
    plan_arguments& given = *arguments;
    if (!given.batch_tokens && !given.batch_samples) given.batch_tokens = 65'536;
    if (given.memory_limit) given.options.memory_limit = parse_bytes(*given.memory_limit);
    plan_run run{given};
    given.all ? run.every() : run.one();
  });
}

}  // namespace command
