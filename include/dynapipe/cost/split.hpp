#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <dynapipe/core/error.hpp>
#include <dynapipe/cost/model.hpp>
#include <dynapipe/cost/stage.hpp>

namespace dynapipe {

/// The stages that hold `layers[s]` of the model's layers each, encoder first. The first stage embeds, and so does an
/// encoder-decoder's first stage with decoder layers (it reads the decoder's tokens); the last holds the head.
///
/// @throws error where a stage has no layer, or the counts do not sum to the model's layers. O(stages).
template <class Lazy = void>
[[nodiscard]] std::vector<stage_spec> cut_layers(const model_spec& model, std::span<const std::int64_t> layers) {
  const auto fail = [&](const std::string& what) { throw error{"split of model '" + model.name + "': " + what}; };
  std::vector<stage_spec> result;
  std::int64_t next = 0;
  bool decoder_seen = false;
  for (const std::int64_t count : layers) {
    if (count < 1)
      fail("stage " + std::to_string(result.size()) + " must have at least 1 layer, it has " + std::to_string(count));
    if (count > model.layers() - next)
      fail("stage " + std::to_string(result.size()) + " has " + std::to_string(count) + " layers, but only " +
           std::to_string(model.layers() - next) + " of the model's " + std::to_string(model.layers()) + " are left");
    const auto encoder = [&](std::int64_t layer) { return std::min(layer, model.encoder_layers); };
    const auto decoder = [&](std::int64_t layer) { return std::max<std::int64_t>(layer - model.encoder_layers, 0); };
    const std::int64_t end = next + count;
    stage_spec stage{.encoder = {encoder(next), encoder(end)}, .decoder = {decoder(next), decoder(end)}};
    const bool first_decoder = !decoder_seen && stage.decoder.count() > 0;
    decoder_seen = decoder_seen || first_decoder;
    stage.embedding = result.empty() || (model.encoder_decoder() && first_decoder);
    stage.head = end == model.layers();
    result.push_back(stage);
    next = end;
  }
  if (next != model.layers())
    fail("its stages have " + std::to_string(next) + " layers, the model has " + std::to_string(model.layers()));
  return result;
}

/// Cuts a model's layers (encoder first) into `stages` runs of equal length; where that does not come out even, the
/// middle stages take one layer more, since the first also embeds and the last also holds the head. See `cut_layers`
/// for what embeds, and `balanced_split` for a split by cost.
///
/// @throws error where there are more stages than layers, or none. O(stages).
template <class Lazy = void>
[[nodiscard]] std::vector<stage_spec> split_layers(const model_spec& model, std::int64_t stages) {
  if (stages < 1 || stages > model.layers())
    throw error{"model '" + model.name + "' has " + std::to_string(model.layers()) + " layers: it cannot be cut into " +
                std::to_string(stages) + " pipeline stages (lower --pp or --stages-per-device)"};
  const std::int64_t rest = model.layers() % stages;
  const std::int64_t first_longer = (stages - rest + 1) / 2;
  std::vector<std::int64_t> layers(static_cast<std::size_t>(stages), model.layers() / stages);
  for (std::int64_t s = first_longer; s < first_longer + rest; ++s)
    layers[static_cast<std::size_t>(s)] += 1;
  return cut_layers(model, layers);
}

/// Checks a split that a user gives: `stages` stages that cover the model's layers in order, each with a layer at
/// least; the embedding on the first stage and on an encoder-decoder's first with decoder layers, nowhere else; the
/// head on the last.
///
/// @throws error naming the stage, the field, what it must be and what it is. O(stages).
template <class Lazy = void>
void require_split(const model_spec& model, std::span<const stage_spec> split, std::size_t stages) {
  const auto fail = [&](const std::string& what) { throw error{"split of model '" + model.name + "': " + what}; };
  if (split.size() != stages)
    fail("it has " + std::to_string(split.size()) + " stages, the pipeline has " + std::to_string(stages) +
         " (devices x stages per device)");
  const auto text = [](const layer_range& range) {
    return "[" + std::to_string(range.from) + ", " + std::to_string(range.to) + ")";
  };
  std::int64_t encoder = 0;
  std::int64_t decoder = 0;
  for (std::size_t s = 0; s < split.size(); ++s) {
    const stage_spec& stage = split[s];
    const std::string where = "stage " + std::to_string(s) + " ";
    const auto follow = [&](const layer_range& range, std::int64_t& next, std::int64_t layers, const char* name) {
      if (range.from < 0 || range.from > range.to || (range.count() > 0 && (range.from != next || range.to > layers)))
        fail(where + "has " + name + " layers " + text(range) + "; they must begin at " + std::to_string(next) +
             ", where the stages before it end, and lie below " + std::to_string(layers));
      if (range.count() > 0) next = range.to;
    };
    follow(stage.encoder, encoder, model.encoder_layers, "encoder");
    const bool starts_decoder = decoder == 0 && stage.decoder.count() > 0;
    follow(stage.decoder, decoder, model.decoder_layers, "decoder");
    if (stage.encoder.count() + stage.decoder.count() == 0) fail(where + "has no layer");
    if (stage.decoder.count() > 0 && encoder < model.encoder_layers)
      fail(where + "has decoder layers " + text(stage.decoder) + " before encoder layer " + std::to_string(encoder));
    const auto placed = [&](bool is, bool must, const char* what, const char* where_to) {
      if (is != must) fail(where + (is ? "has " : "lacks ") + what + ", which belongs on " + where_to);
    };
    placed(stage.embedding, s == 0 || (model.encoder_decoder() && starts_decoder), "the embedding",
           model.encoder_decoder() ? "the first stage and on the first with decoder layers" : "the first stage");
    placed(stage.head, s + 1 == split.size(), "the head", "the last stage");
  }
  if (encoder != model.encoder_layers || decoder != model.decoder_layers)
    fail("it ends at encoder layer " + std::to_string(encoder) + " of " + std::to_string(model.encoder_layers) +
         " and decoder layer " + std::to_string(decoder) + " of " + std::to_string(model.decoder_layers));
}

}  // namespace dynapipe
