#include <charconv>
#include <cstdint>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include <dynapipe/core/error.hpp>
#include <dynapipe/cost/flops.hpp>
#include <dynapipe/cost/memory.hpp>
#include <dynapipe/cost/parameters.hpp>
#include <dynapipe/cost/stage_costs.hpp>

#include "arguments.hpp"
#include "commands.hpp"
#include "costs.hpp"

namespace command {

namespace {

struct question {
  std::string model;
  std::string cluster;
  cost_arguments costs;
  dynapipe::planner_options options;
  std::vector<std::string> shapes;
  std::string summary = "text";
};

/// "8x512" or "8x512+128": rows, tokens of the input, tokens of the target.
dynapipe::shape parse_shape(const std::string& text, const dynapipe::model_spec& model) {
  const auto fail = [&](const std::string& why) {
    throw dynapipe::error{"--shape '" + text + "' " + why + " (examples: 8x512, 8x512+128)"};
  };
  std::string_view rest = text;
  const auto take = [&](char end) {
    const std::size_t at = end == '\0' ? rest.size() : rest.find(end);
    std::int64_t value = 0;
    const std::string_view digits = rest.substr(0, std::min(at, rest.size()));
    const auto [stop, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (at == std::string_view::npos || digits.empty() || stop != digits.data() + digits.size() ||
        problem != std::errc{} || value < 1 || value > std::int64_t{1} << 31)
      fail("is no shape of numbers in 1..2^31");
    rest.remove_prefix(std::min(rest.size(), at + 1));
    return value;
  };
  dynapipe::shape s{.rows = take('x')};
  const bool pair = rest.find('+') != std::string_view::npos;
  s.input = take(pair ? '+' : '\0');
  if (pair) s.target = take('\0');
  if (model.encoder_decoder() != pair)
    fail(pair ? "has a target, which decoder-only models do not read apart"
              : "lacks the target that an encoder-decoder reads");
  return s;
}

/// The kinds of layers of a model, with how many there are.
std::vector<std::pair<dynapipe::layer_kind, std::int64_t>> layers_of(const dynapipe::model_spec& model) {
  std::vector<std::pair<dynapipe::layer_kind, std::int64_t>> kinds{{dynapipe::layer_kind::embedding, 1}};
  if (model.encoder_layers > 0) kinds.emplace_back(dynapipe::layer_kind::encoder, model.encoder_layers);
  kinds.emplace_back(model.decoder_kind(), model.decoder_layers);
  kinds.emplace_back(dynapipe::layer_kind::head, 1);
  return kinds;
}

class cost_answer {
 public:
  cost_answer(const question& asked)
      : asked_{asked},
        model_{model_of(asked.model)},
        costs_{choose_costs(asked.costs, model_, cluster_of(asked.cluster), asked.options)} {}

  [[nodiscard]] std::string text() const {
    std::string out =
        fmt::format("costs of one layer: {}; {}, tensor parallel {}, recompute {}\n", costs_.cost.source(), model_.name,
                    asked_.options.tensor, to_string(asked_.options.recompute));
    auto at = std::back_inserter(out);
    for (const std::string& text : asked_.shapes) {
      const dynapipe::shape s = parse_shape(text, model_);
      fmt::format_to(at, "\n{}\n{:<14} {:>6} {:>12} {:>12} {:>11} {:>11} {:>11} {:>11} {:>8}\n", text, "layer", "count",
                     "forward ms", "backward ms", "stored MiB", "fwd peak", "bwd peak", "GFLOP fwd", "");
      for (const auto& [kind, count] : layers_of(model_)) {
        const dynapipe::recompute_mode mode = asked_.options.recompute;
        if (const std::string why = costs_.cost.refusal(kind, s, mode); !why.empty()) {
          fmt::format_to(at, "{:<14} refused: {}\n", to_string(kind), why);
          continue;
        }
        const dynapipe::detail::layer_bill bill = dynapipe::detail::bill_of(costs_.cost, kind, s, mode);
        const auto ms = [](std::int64_t ns) { return static_cast<double>(ns) / 1e6; };
        const auto mib = [](std::int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
        fmt::format_to(at, "{:<14} {:>6} {:>12.4f} {:>12.4f} {:>11.2f} {:>11.2f} {:>11.2f} {:>11.2f} {:>8}\n",
                       to_string(kind), count, ms(bill.forward), ms(bill.backward), mib(bill.stored),
                       mib(bill.forward_peak), mib(bill.backward_peak),
                       static_cast<double>(dynapipe::forward_flops(model_, kind, s)) / 1e9,
                       costs_.cost.extrapolates(kind, s, mode) ? "beyond" : "");
      }
    }
    return out;
  }

  [[nodiscard]] std::string json() const {
    std::string out = "[";
    auto at = std::back_inserter(out);
    for (const std::string& text : asked_.shapes) {
      const dynapipe::shape s = parse_shape(text, model_);
      fmt::format_to(at, "{}{{\"shape\": [{}, {}, {}], \"layers\": [", out.size() > 1 ? ",\n " : "", s.rows, s.input,
                     s.target);
      bool first = true;
      for (const auto& [kind, count] : layers_of(model_)) {
        const dynapipe::recompute_mode mode = asked_.options.recompute;
        fmt::format_to(at, "{}\n  {{\"kind\": \"{}\", \"count\": {}, ", first ? "" : ",", to_string(kind), count);
        first = false;
        if (const std::string why = costs_.cost.refusal(kind, s, mode); !why.empty()) {
          fmt::format_to(at, "\"refused\": {}}}", dynapipe::json_detail::quoted(why));
          continue;
        }
        const dynapipe::detail::layer_bill bill = dynapipe::detail::bill_of(costs_.cost, kind, s, mode);
        fmt::format_to(
            at,
            "\"forward_ns\": {}, \"backward_ns\": {}, \"stored_bytes\": {}, \"forward_peak_bytes\": {}, "
            "\"backward_peak_bytes\": {}, \"state_bytes\": {}, \"forward_flops\": {}, \"extrapolated\": {}}}",
            bill.forward, bill.backward, bill.stored, bill.forward_peak, bill.backward_peak,
            costs_.cost.state(kind).value(), dynapipe::forward_flops(model_, kind, s),
            costs_.cost.extrapolates(kind, s, mode));
      }
      out += "]}";
    }
    return out += "]\n";
  }

 private:
  const question& asked_;
  dynapipe::model_spec model_;
  chosen_costs costs_;
};

}  // namespace

void add_cost(CLI::App& app, int&) {
  CLI::App* cost = app.add_subcommand("cost", "What the layers of a model cost for given shapes");
  const auto arguments = std::make_shared<question>();
  question& a = *arguments;
  cost->add_option("--model", a.model, "Model preset, or a JSON file")->required();
  cost->add_option("--cluster", a.cluster, "Cluster preset, or a JSON file")->required();
  add_costs(*cost, a.costs, a.options);
  add_number(*cost, "--dp", a.options.data, "Data-parallel replicas, for --zero (default 1)");
  add_word(*cost, "--recompute", a.options.recompute, dynapipe::recompute_names, "Activation recomputation");
  cost->add_option("--shape", a.shapes, "Rows x tokens of a micro-batch, + tokens of the target: 8x512, 8x512+128")
      ->required();
  add_summary(*cost, a.summary);
  cost->callback([arguments] {
    const cost_answer answer{*arguments};
    std::cout << (arguments->summary == "json" ? answer.json() : answer.text());
  });
}

}  // namespace command
